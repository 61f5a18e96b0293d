// data.cpp: weft.data's native parts: RecordIO files, pictures, random numbers of samples. Thin: arrays are
// checked here, and the GIL is released for what takes longer than a microsecond.
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <system_error>

#include "bindings/python.h"
#include "data/image.h"
#include "data/record.h"
#include "data/sample_random.h"

namespace weft {
namespace {

using Pixels = nb::ndarray<uint8_t, nb::ndim<3>, nb::device::cpu>;
using ConstPixels = nb::ndarray<const uint8_t, nb::ndim<3>, nb::device::cpu>;
using Floats = nb::ndarray<float, nb::device::cpu, nb::c_contig>;
using ConstFloats = nb::ndarray<const float, nb::device::cpu, nb::c_contig>;

[[noreturn]] void raise_os_error(const std::system_error& error, const std::string& path) {
  errno = error.code().value();
  PyErr_SetFromErrnoWithFilename(PyExc_OSError, path.c_str());
  throw nb::python_error();
}

template <class Array>
Picture picture(const Array& x, const char* function) {
  const auto text = [&](const char* what) { return std::string(function) + ": " + what; };
  const int64_t channels = static_cast<int64_t>(x.shape(2));
  if (channels < 1 || channels > 4) throw value_error(text("a picture has 1 to 4 channels in its last axis"));
  if (x.shape(0) == 0 || x.shape(1) == 0) throw value_error(text("the picture is empty"));
  if ((channels > 1 && x.stride(2) != 1) || (x.shape(1) > 1 && x.stride(1) != channels))
    throw value_error(text("pixels of a row must lie side by side"));
  return {const_cast<uint8_t*>(x.data()), static_cast<int64_t>(x.shape(0)), static_cast<int64_t>(x.shape(1)),
          channels, x.stride(0)};
}

void same_channels(const Picture& a, const Picture& b, const char* function) {
  if (a.channels != b.channels)
    throw value_error(std::string(function) + ": channels differ: " + std::to_string(a.channels) + " and " +
                      std::to_string(b.channels));
}

void same_size(const Picture& a, const Picture& b, const char* function) {
  same_channels(a, b, function);
  if (a.height != b.height || a.width != b.width)
    throw value_error(std::string(function) + ": pictures differ in size");
}

void inside(const Picture& from, int64_t y, int64_t x, int64_t h, int64_t w, const char* function) {
  if (y < 0 || x < 0 || h < 0 || w < 0 || y + h > from.height || x + w > from.width)
    throw value_error((std::string(function) + ": the part [" + std::to_string(y) + ", " +
                       std::to_string(y + h) + ") x [" + std::to_string(x) + ", " + std::to_string(x + w) +
                       ") is not inside of " + std::to_string(from.height) + " x " +
                       std::to_string(from.width) + " pixels"));
}

Resample filter_of(const std::string& name) {
  if (name == "nearest") return Resample::nearest;
  if (name == "linear") return Resample::linear;
  if (name == "area") return Resample::area;
  if (name == "cubic") return Resample::cubic;
  throw value_error("filter must be 'nearest', 'linear', 'area' or 'cubic', got '" + name + "'");
}

void enough(size_t have, size_t need, const char* function, const char* what) {
  if (have != need)
    throw value_error(std::string(function) + ": " + what + " needs " + std::to_string(need) +
                      " numbers, got " + std::to_string(have));
}

nb::object as_array(std::vector<int64_t>&& values) {
  auto* held = new std::vector<int64_t>(std::move(values));
  const nb::capsule owner(held, [](void* p) noexcept { delete static_cast<std::vector<int64_t>*>(p); });
  return nb::cast(nb::ndarray<nb::numpy, int64_t, nb::ndim<1>>(held->data(), {held->size()}, owner));
}

nb::object bytes_of(const RecordFile& file, const Record& record) {
  if (!record.split) return nb::bytes(file.content(record), static_cast<size_t>(record.size));
  nb::object bytes = nb::steal(PyBytes_FromStringAndSize(nullptr, static_cast<Py_ssize_t>(record.size)));
  if (!bytes.is_valid()) throw nb::python_error();
  file.copy(record, PyBytes_AsString(bytes.ptr()));
  return bytes;
}

void bind_records(nb::module_& m) {
  Class<RecordFile>(m, "RecordFile")
      .def("__init__",
           [](RecordFile* self, const std::string& path) {
             try {
               new (self) RecordFile(path);
             } catch (const std::system_error& error) {
               raise_os_error(error, path);
             }
           })
      .def_prop_ro("size_bytes", &RecordFile::size)
      .def("find", &RecordFile::find, "offset"_a, nb::call_guard<nb::gil_scoped_release>())
      .def(
          "read",
          [](const RecordFile& file, int64_t offset) {
            const Record record = file.at(offset);
            if (record.problem) return nb::make_tuple(nb::none(), nb::str(record.problem));
            return nb::make_tuple(bytes_of(file, record), record.next);
          },
          "offset"_a, "(content, offset of the next record), or (None, what is wrong).")
      .def(
          "read_many",
          [](const RecordFile& file, int64_t offset, int64_t end, int64_t count, int64_t most_bytes) {
            nb::list contents;
            const char* problem = nullptr;
            for (int64_t bytes = 0; offset < end && offset < file.size() && count > 0 && bytes < most_bytes;
                 --count) {
              const Record record = file.at(offset);
              if ((problem = record.problem)) break;
              contents.append(bytes_of(file, record));
              bytes += record.size;
              offset = record.next;
            }
            return nb::make_tuple(contents, offset, problem ? nb::object(nb::str(problem)) : nb::none());
          },
          "offset"_a, "end"_a, "count"_a, "most_bytes"_a,
          "(contents of the next records, offset behind them, None or what is wrong there).")
      .def(
          "scan",
          [](const RecordFile& file, int64_t from, int64_t to, bool skip) {
            std::vector<int64_t> begins;
            int64_t skipped = 0;
            Record stop;
            {
              const nb::gil_scoped_release released;
              stop = file.scan(from, to, skip, begins, skipped);
            }
            return nb::make_tuple(as_array(std::move(begins)), stop.begin,
                                  stop.problem ? nb::object(nb::str(stop.problem)) : nb::none(), skipped);
          },
          "begin"_a, "end"_a, "skip"_a = false,
          "(offsets of records, where it stopped, None or what is wrong there, places skipped).");
  def(
      m, "read_record_index",
      [](const std::string& path) {
        std::vector<int64_t> keys, offsets;
        int64_t line = 0;
        try {
          const nb::gil_scoped_release released;
          line = read_index(path, keys, offsets);
        } catch (const std::system_error& error) {
          raise_os_error(error, path);
        }
        if (line) throw value_error(path + ": line " + std::to_string(line) + " is not 'key<TAB>offset'");
        return nb::make_tuple(keys.empty() ? nb::none() : as_array(std::move(keys)),
                              as_array(std::move(offsets)));
      },
      "path"_a, "(keys, None for 0, 1, ..., and offsets) of an index file.");
}

void bind_pictures(nb::module_& m) {
  def(
      m, "image_resize",
      [](const ConstPixels& from, const Pixels& to, double y, double x, double h, double w,
         const std::string& filter, bool mirror) {
        const Picture a = picture(from, "resize"), b = picture(to, "resize");
        same_channels(a, b, "resize");
        const Resample kind = filter_of(filter);
        if (!(h > 0 && w > 0)) throw nb::value_error("resize: the part is empty");
        const nb::gil_scoped_release released;
        resize(a, y, x, h, w, b, kind, mirror);
      },
      "image"_a, "out"_a, "y"_a, "x"_a, "h"_a, "w"_a, "filter"_a, "mirror"_a = false);
  def(
      m, "image_warp",
      [](const ConstPixels& from, const Pixels& to, const std::vector<double>& matrix,
         const std::string& filter, const std::vector<uint8_t>& fill) {
        const Picture a = picture(from, "warp"), b = picture(to, "warp");
        same_channels(a, b, "warp");
        enough(matrix.size(), 6, "warp", "matrix");
        enough(fill.size(), static_cast<size_t>(a.channels), "warp", "fill");
        const Resample kind = filter_of(filter);
        const nb::gil_scoped_release released;
        warp(a, matrix.data(), b, kind, fill.data());
      },
      "image"_a, "out"_a, "matrix"_a, "filter"_a, "fill"_a);
  def(
      m, "image_mix_channels",
      [](const ConstPixels& from, const Pixels& to, const ConstFloats& matrix) {
        const Picture a = picture(from, "mix_channels"), b = picture(to, "mix_channels");
        same_size(a, b, "mix_channels");
        enough(static_cast<size_t>(a.channels), 3, "mix_channels", "a pixel");
        enough(matrix.size(), 12, "mix_channels", "matrix");
        const nb::gil_scoped_release released;
        mix_channels(a, matrix.data(), b);
      },
      "image"_a, "out"_a, "matrix"_a);
  def(
      m, "image_look_up",
      [](const ConstPixels& from, const Pixels& to,
         const nb::ndarray<const uint8_t, nb::ndim<2>, nb::c_contig, nb::device::cpu>& table) {
        const Picture a = picture(from, "look_up"), b = picture(to, "look_up");
        same_size(a, b, "look_up");
        enough(table.size(), static_cast<size_t>(a.channels) * 256, "look_up", "table");
        const nb::gil_scoped_release released;
        look_up(a, table.data(), b);
      },
      "image"_a, "out"_a, "table"_a);
  def(
      m, "image_count_values",
      [](const ConstPixels& from,
         const nb::ndarray<int64_t, nb::ndim<2>, nb::c_contig, nb::device::cpu>& counts) {
        const Picture a = picture(from, "count_values");
        enough(counts.size(), static_cast<size_t>(a.channels) * 256, "count_values", "counts");
        const nb::gil_scoped_release released;
        count_values(a, counts.data());
      },
      "image"_a, "counts"_a);
  def(
      m, "image_sharpen",
      [](const ConstPixels& from, const Pixels& to, float amount) {
        const Picture a = picture(from, "sharpen"), b = picture(to, "sharpen");
        same_size(a, b, "sharpen");
        const nb::gil_scoped_release released;
        sharpen(a, amount, b);
      },
      "image"_a, "out"_a, "amount"_a);
  def(
      m, "image_crop",
      [](const ConstPixels& from, const Pixels& to, int64_t y, int64_t x, bool mirror) {
        const Picture a = picture(from, "crop"), b = picture(to, "crop");
        same_channels(a, b, "crop");
        inside(a, y, x, b.height, b.width, "crop");
        const nb::gil_scoped_release released;
        crop(a, y, x, mirror, b);
      },
      "image"_a, "out"_a, "y"_a, "x"_a, "mirror"_a = false);
  def(
      m, "image_normalize",
      [](const ConstPixels& from, const Floats& to, int64_t y, int64_t x, bool mirror,
         const ConstFloats& mean, const ConstFloats& factor, bool planar) {
        const Picture a = picture(from, "normalize");
        if (to.ndim() != 3) throw nb::value_error("normalize: out has 3 axes");
        const auto h = static_cast<int64_t>(to.shape(planar ? 1 : 0)),
                   w = static_cast<int64_t>(to.shape(planar ? 2 : 1));
        enough(to.shape(planar ? 0 : 2), static_cast<size_t>(a.channels), "normalize", "the channel axis");
        enough(mean.size(), static_cast<size_t>(a.channels), "normalize", "mean");
        enough(factor.size(), static_cast<size_t>(a.channels), "normalize", "factor");
        inside(a, y, x, h, w, "normalize");
        const nb::gil_scoped_release released;
        normalize(a, y, x, h, w, mirror, mean.data(), factor.data(), planar, to.data());
      },
      "image"_a, "out"_a, "y"_a, "x"_a, "mirror"_a, "mean"_a, "factor"_a, "planar"_a);
}

}  // namespace

void bind_data(nb::module_& m) {
  bind_records(m);
  bind_pictures(m);
  Class<SampleRandom>(m, "SampleRandom")
      .def(nb::init<uint64_t, uint32_t, uint64_t, uint32_t>(), "seed"_a, "epoch"_a, "index"_a, "kind"_a)
      .def(
          "uniform",
          [](SampleRandom& r, double low, double high) { return low + (high - low) * r.uniform(); },
          "low"_a = 0.0, "high"_a = 1.0)
      .def("normal", &SampleRandom::normal)
      .def("bits", &SampleRandom::bits)
      .def(
          "below",
          [](SampleRandom& r, int64_t count) {
            if (count < 1) throw nb::value_error("below: count must be at least 1");
            return r.below(count);
          },
          "count"_a);
}

}  // namespace weft
