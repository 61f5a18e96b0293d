// data.cpp: weft.data's native parts: RecordIO files, pictures, random numbers of samples. Thin: arrays are
// checked here, and the GIL is released for what takes longer than a microsecond.
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cmath>
#include <cstring>
#include <system_error>

#include "bindings/python.h"
#include "data/picture_checks.h"
#include "data/record.h"
#include "data/sample_random.h"

namespace weft {
namespace {

using Pixels = nb::ndarray<uint8_t, nb::ndim<3>, nb::device::cpu>;
using ConstPixels = nb::ndarray<const uint8_t, nb::ndim<3>, nb::device::cpu>;
using Floats = nb::ndarray<float, nb::device::cpu, nb::c_contig>;
template <class T>
using Table = nb::ndarray<T, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using ConstFloats = nb::ndarray<const float, nb::device::cpu, nb::c_contig>;

[[noreturn]] void raise_os_error(const std::system_error& error, const std::string& path) {
  errno = error.code().value();
  PyErr_SetFromErrnoWithFilename(PyExc_OSError, path.c_str());
  throw nb::python_error();
}

template <class Array>
Picture picture(const Array& x, const char* function) {
  int64_t shape[3], strides[3];
  for (size_t d = 0; d < 3; ++d) shape[d] = static_cast<int64_t>(x.shape(d)), strides[d] = x.stride(d);
  return as_picture(x.data(), shape, strides, function);
}

nb::object as_array(std::vector<int64_t>&& values) {
  auto* held = new std::vector<int64_t>(std::move(values));
  const nb::capsule owner(held, [](void* p) noexcept { delete static_cast<std::vector<int64_t>*>(p); });
  return nb::cast(nb::ndarray<nb::numpy, int64_t, nb::ndim<1>>(held->data(), {held->size()}, owner));
}

// Invalid: the file has been cut.
nb::object bytes_of(RecordFile::Reader& reader, const Record& record) {
  nb::object bytes = checked(PyBytes_FromStringAndSize(nullptr, static_cast<Py_ssize_t>(record.size)));
  return reader.copy(record, PyBytes_AsString(bytes.ptr())) ? bytes : nb::object();
}
constexpr const char* kCut = "the file has been cut or changed since it was opened";

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
      .def(
          "find",
          [](const RecordFile& file, int64_t offset) {
            const Blocking blocking;
            return RecordFile::Reader(file).find(offset);
          },
          "offset"_a)
      .def(
          "read",
          [](const RecordFile& file, int64_t offset) {
            RecordFile::Reader reader(file);
            const Record record = reader.at(offset);
            if (record.problem) return nb::make_tuple(nb::none(), nb::str(record.problem));
            const nb::object bytes = bytes_of(reader, record);
            if (!bytes.is_valid()) return nb::make_tuple(nb::none(), nb::str(kCut));
            return nb::make_tuple(bytes, record.next);
          },
          "offset"_a, "(content, offset of the next record), or (None, what is wrong).")
      .def(
          "read_many",
          [](const RecordFile& file, int64_t offset, int64_t end, int64_t count, int64_t most_bytes) {
            nb::list contents;
            RecordFile::Reader reader(file);
            const char* problem = nullptr;
            for (int64_t bytes = 0; offset < end && offset < file.size() && count > 0 && bytes < most_bytes;
                 --count) {
              const Record record = reader.at(offset);
              if ((problem = record.problem)) break;
              const nb::object content = bytes_of(reader, record);
              if (!content.is_valid()) {
                problem = kCut;
                break;
              }
              contents.append(content);
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
              const Blocking blocking;
              stop = RecordFile::Reader(file).scan(from, to, skip, begins, skipped);
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

// image_NAME(image, out, ...): `body` gets both as pictures, and the arguments behind them; it runs without
// the GIL.
template <class F, class... A, class... Extra>
void def_picture_as(nb::module_& m, const char* name, F body,
                    void (F::*)(const Picture&, const Picture&, A...) const, const Extra&... extra) {
  const char* const function = name + std::strlen("image_");
  def(
      m, name,
      [body, function](const ConstPixels& image, const Pixels& out, A... arguments) {
        const Picture from = picture(image, function), to = picture(out, function);
        const nb::gil_scoped_release released;
        body(from, to, std::forward<A>(arguments)...);
      },
      "image"_a, "out"_a, extra...);
}
template <class F, class... Extra>
void def_picture(nb::module_& m, const char* name, F body, const Extra&... extra) {
  def_picture_as(m, name, body, &F::operator(), extra...);
}

void bind_pictures(nb::module_& m) {
  def_picture(
      m, "image_resize",
      [](const Picture& from, const Picture& to, double y, double x, double h, double w,
         const std::string& filter, bool mirror) {
        check_same_channels(from, to, "resize");
        const Resample kind = resample_of(filter);
        if (!(h > 0 && w > 0)) throw ValueError("resize: the part is empty");
        constexpr double kMost = 1e9;  // pixels are counted with 32 bits
        if (!(std::abs(y) <= kMost && std::abs(x) <= kMost && h <= kMost && w <= kMost))
          throw ValueError("resize: the part reaches further than 1e9 pixels");
        resize(from, y, x, h, w, to, kind, mirror);
      },
      "y"_a, "x"_a, "h"_a, "w"_a, "filter"_a, "mirror"_a = false);
  def_picture(
      m, "image_warp",
      [](const Picture& from, const Picture& to, const std::vector<double>& matrix, const std::string& filter,
         const std::vector<uint8_t>& fill) {
        check_same_channels(from, to, "warp");
        check_count(matrix.size(), 6, "warp", "matrix");
        check_count(fill.size(), from.channels, "warp", "fill");
        warp(from, matrix.data(), to, resample_of(filter), fill.data());
      },
      "matrix"_a, "filter"_a, "fill"_a);
  def_picture(
      m, "image_mix_channels",
      [](const Picture& from, const Picture& to, const ConstFloats& matrix) {
        check_same_size(from, to, "mix_channels");
        check_count(static_cast<size_t>(from.channels), 3, "mix_channels", "a pixel");
        check_count(matrix.size(), 12, "mix_channels", "matrix");
        mix_channels(from, matrix.data(), to);
      },
      "matrix"_a);
  def_picture(
      m, "image_look_up",
      [](const Picture& from, const Picture& to, const Table<const uint8_t>& table) {
        check_same_size(from, to, "look_up");
        check_count(table.size(), from.channels * 256, "look_up", "table");
        look_up(from, table.data(), to);
      },
      "table"_a);
  def(
      m, "image_count_values",
      [](const ConstPixels& image, const Table<int64_t>& counts) {
        const Picture from = picture(image, "count_values");
        check_count(counts.size(), from.channels * 256, "count_values", "counts");
        const nb::gil_scoped_release released;
        count_values(from, counts.data());
      },
      "image"_a, "counts"_a);
  def_picture(
      m, "image_sharpen",
      [](const Picture& from, const Picture& to, float amount) {
        check_same_size(from, to, "sharpen");
        sharpen(from, amount, to);
      },
      "amount"_a);
  def_picture(
      m, "image_crop",
      [](const Picture& from, const Picture& to, int64_t y, int64_t x, bool mirror) {
        check_same_channels(from, to, "crop");
        check_inside(from, y, x, to.height, to.width, "crop");
        crop(from, y, x, mirror, to);
      },
      "y"_a, "x"_a, "mirror"_a = false);
  def(
      m, "image_normalize",
      [](const ConstPixels& image, const Floats& to, int64_t y, int64_t x, bool mirror,
         const ConstFloats& mean, const ConstFloats& factor, bool planar) {
        const Picture from = picture(image, "normalize");
        if (to.ndim() != 3) throw ValueError("normalize: out has 3 axes");
        const auto h = static_cast<int64_t>(to.shape(planar ? 1 : 0)),
                   w = static_cast<int64_t>(to.shape(planar ? 2 : 1));
        check_count(to.shape(planar ? 0 : 2), from.channels, "normalize", "the channel axis");
        check_count(mean.size(), from.channels, "normalize", "mean");
        check_count(factor.size(), from.channels, "normalize", "factor");
        check_inside(from, y, x, h, w, "normalize");
        const nb::gil_scoped_release released;
        normalize(from, y, x, h, w, mirror, mean.data(), factor.data(), planar, to.data());
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
