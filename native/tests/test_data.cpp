// RecordIO files of any bytes, and pictures of any size: nothing outside of a file or picture is read or
// written, which the address sanitizer says; records that are whole are found between those that are not.
#include <unistd.h>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <limits>
#include <random>
#include <string>
#include <system_error>
#include <vector>

#include "data/picture_checks.h"
#include "data/record.h"
#include "data/sample_random.h"
#include "engine/error.h"
#include "engine/parking.h"
#include "tests/check.h"

using namespace weft;
using namespace weft::testing;

namespace {

// A file that is removed at the end.
struct Temporary {
  std::string path = "weft-test-" + std::to_string(getpid()) + ".rec";

  explicit Temporary(const std::string& content) {
    std::ofstream(path, std::ios::binary).write(content.data(), static_cast<std::streamsize>(content.size()));
  }
  ~Temporary() { std::remove(path.c_str()); }
};

std::string word(uint32_t value) {
  std::string text(4, '\0');
  std::memcpy(text.data(), &value, 4);
  return text;
}

std::string part(uint32_t flag, const std::string& content) {
  return word(kRecordMagic) + word(flag << 29 | static_cast<uint32_t>(content.size())) + content +
         std::string((4 - content.size() % 4) % 4, '\0');
}

std::string content_of(RecordFile::Reader& reader, const Record& record) {
  std::string content(static_cast<size_t>(record.size), '\0');
  CHECK(reader.copy(record, content.data()));
  return content;
}

using Pixels = std::vector<uint8_t>;

Picture picture(Pixels& pixels, int64_t h, int64_t w, int64_t c) {
  pixels.assign(static_cast<size_t>(h * w * c), 0);
  return {pixels.data(), h, w, c, w * c};
}

}  // namespace

TEST(records_of_parts) {
  const std::string magic = word(kRecordMagic);
  const Temporary file(part(0, "abc") + part(1, "abcd") + part(2, "") + part(3, "x") + part(0, ""));
  const RecordFile whole(file.path);
  RecordFile::Reader records(whole);
  const Record first = records.at(0), second = records.at(first.next), third = records.at(second.next);
  CHECK(!first.problem && !second.problem && !third.problem);
  CHECK_EQ(content_of(records, first), "abc");
  CHECK_EQ(content_of(records, second), "abcd" + magic + magic + "x");
  CHECK_EQ(third.size, 0);
  CHECK_EQ(third.next, whole.size());
  CHECK_EQ(records.find(1), first.next);
  CHECK_EQ(records.find(first.next + 1), second.next);
  CHECK(records.at(4).problem != nullptr);
  CHECK(records.at(whole.size()).problem != nullptr);
  CHECK(records.at(-8).problem != nullptr);
  CHECK_THROWS(RecordFile("no/such/file"), std::system_error);
}

TEST(records_in_any_bytes) {
  std::mt19937_64 rng(seed());
  for (int round = 0; round < 200; ++round) {
    std::string bytes;
    for (int k = 0; k < 20; ++k) {
      switch (rng() % 4) {
        case 0:
          bytes += word(kRecordMagic);
          break;
        case 1:
          bytes += word(static_cast<uint32_t>(rng()));
          break;
        case 2:
          bytes += word(static_cast<uint32_t>((rng() % 4) << 29 | rng() % 40));
          break;
        default:
          bytes += part(static_cast<uint32_t>(rng() % 4), std::string(rng() % 9, 'x'));
      }
    }
    bytes.resize(bytes.size() - rng() % 4);
    const Temporary file(bytes);
    const RecordFile whole(file.path);
    RecordFile::Reader records(whole);
    std::vector<int64_t> begins;
    int64_t skipped = 0;
    const Record end = records.scan(0, whole.size(), true, begins, skipped);
    CHECK(end.problem == nullptr);
    for (const int64_t begin : begins) {
      const Record record = records.at(begin);
      CHECK(record.problem == nullptr);
      CHECK_EQ(content_of(records, record).size(), static_cast<size_t>(record.size));
    }
  }
}

// Each of n begins leads to the same n parts, which end nowhere: these are gone through once.
TEST(records_scan_is_linear) {
  const auto seconds = [](uint32_t n) {
    std::string bytes;
    for (uint32_t i = 0; i < n; ++i)
      bytes += word(kRecordMagic) + word(uint32_t{1} << 29 | (8 * n - 8 * i - 8));
    for (uint32_t i = 0; i < n; ++i) bytes += word(kRecordMagic) + word(uint32_t{2} << 29);
    const Temporary file(bytes + part(0, "last"));
    const RecordFile whole(file.path);
    RecordFile::Reader records(whole);
    std::vector<int64_t> begins;
    int64_t skipped = 0;
    const auto start = Clock::now();
    CHECK(!records.scan(0, whole.size(), true, begins, skipped).problem);
    CHECK_EQ(begins, (std::vector<int64_t>{16 * n}));
    CHECK_EQ(skipped, int64_t{n});
    return std::chrono::duration<double>(Clock::now() - start).count();
  };
  seconds(1000);
  CHECK(seconds(100000) < 20);  // not 500 s
}

TEST(records_of_a_file_that_is_cut) {
  const std::string large(100000, 'x');
  const Temporary file(part(0, large) + part(1, large) + part(3, "end") + part(0, large));
  const RecordFile whole(file.path);
  RecordFile::Reader reader(whole);
  const Record first = reader.at(0), second = reader.at(first.next), third = reader.at(second.next);
  CHECK_EQ(truncate(file.path.c_str(), first.next + 50000), 0);
  RecordFile::Reader later(whole);
  std::string content(2 * large.size(), ' ');
  CHECK_EQ(content_of(later, later.at(0)), large);
  CHECK(!later.copy(second, content.data()));
  CHECK(!later.copy(third, content.data()));
  CHECK(later.at(third.begin).problem != nullptr);
  CHECK(later.at(first.next).problem != nullptr);
  std::vector<int64_t> begins;
  int64_t skipped = 0;
  CHECK(RecordFile::Reader(whole).scan(0, whole.size(), true, begins, skipped).problem != nullptr);
  CHECK_EQ(begins, (std::vector<int64_t>{0}));
}

// Another process writes to the file between the finding of a record and its reading.
TEST(records_whose_parts_become_longer) {
  const Temporary file(part(1, "abcd") + part(3, "efgh") + part(0, std::string(100, 'x')));
  const RecordFile whole(file.path);
  RecordFile::Reader reader(whole);
  const Record first = reader.at(0);
  CHECK_EQ(first.size, 12);
  std::string content(12, ' ');
  FILE* const other = std::fopen(file.path.c_str(), "r+b");
  CHECK_EQ(std::fseek(other, 16, SEEK_SET), 0);
  const std::string longer = word(uint32_t{3} << 29 | 90);
  CHECK_EQ(std::fwrite(longer.data(), 1, 4, other), size_t{4});
  std::fclose(other);
  CHECK(!RecordFile::Reader(whole).copy(first, content.data()));
}

TEST(index_of_any_text) {
  std::mt19937_64 rng(seed());
  const char letters[] = "0123456789\t\t\n\n\r x";
  for (int round = 0; round < 300; ++round) {
    std::string text;
    for (uint64_t k = rng() % 60; k > 0; --k) text += letters[rng() % (sizeof letters - 1)];
    const Temporary file(text);
    std::vector<int64_t> keys, offsets;
    const int64_t bad = read_index(file.path, keys, offsets);
    CHECK(bad >= 0);
    CHECK(keys.empty() || keys.size() == offsets.size());
  }
  const Temporary file("0\t0\n2\t16\r\n1\t24");
  std::vector<int64_t> keys, offsets;
  CHECK_EQ(read_index(file.path, keys, offsets), 0);
  CHECK_EQ(keys, (std::vector<int64_t>{0, 2, 1}));
  CHECK_EQ(offsets, (std::vector<int64_t>{0, 16, 24}));
}

TEST(pictures_of_any_size) {
  std::mt19937_64 rng(seed());
  const auto below = [&](int64_t limit) {
    return static_cast<int64_t>(rng() % static_cast<uint64_t>(limit));
  };
  for (int round = 0; round < 150; ++round) {
    const int64_t channels = 1 + below(4), h = 1 + below(40), w = 1 + below(40);
    Pixels from_pixels, to_pixels;
    const Picture from = picture(from_pixels, h, w, channels);
    for (uint8_t& each : from_pixels) each = static_cast<uint8_t>(rng());
    const Picture to = picture(to_pixels, 1 + below(40), 1 + below(40), channels);
    const auto filter = static_cast<Resample>(below(4));
    // Parts may reach beyond the picture: its edges are what is there.
    const double y = static_cast<double>(below(h + 20)) - 10, x = static_cast<double>(below(w + 20)) - 10;
    resize(from, y, x, 0.5 + static_cast<double>(below(60)), 0.5 + static_cast<double>(below(60)), to, filter,
           round % 2 == 0);
    double m[6];
    for (double& each : m) each = static_cast<double>(below(2001) - 1000) / 100;
    m[2] = round % 7 == 0 ? 1e300 : round % 7 == 1 ? std::nan("") : m[2];
    const uint8_t fill[4] = {1, 2, 3, 4};
    warp(from, m, to, filter, fill);
    const int64_t part_h = 1 + below(h), part_w = 1 + below(w);
    const Picture part = picture(to_pixels, part_h, part_w, channels);
    const int64_t top = below(h - part_h + 1), left = below(w - part_w + 1);
    crop(from, top, left, round % 2 == 0, part);
    std::vector<float> floats(static_cast<size_t>(part_h * part_w * channels));
    const float mean[4] = {1, 2, 3, 4}, factor[4] = {1, 1, 1, 1};
    normalize(from, top, left, part_h, part_w, round % 2 == 0, mean, factor, round % 3 != 0, floats.data());
    const int64_t i = below(part_h), j = below(part_w), c = below(channels);
    const float value = floats[static_cast<size_t>(round % 3 != 0 ? (c * part_h + i) * part_w + j
                                                                  : (i * part_w + j) * channels + c)];
    CHECK_EQ(value + mean[c], static_cast<float>(part.data[(i * part_w + j) * channels + c]));
    const Picture same = picture(to_pixels, h, w, channels);
    sharpen(from, 0.5f, same);
    std::vector<uint8_t> table(static_cast<size_t>(256 * channels), 7);
    look_up(from, table.data(), same);
    CHECK_EQ(int{same.data[0]}, 7);
    std::vector<int64_t> counts(static_cast<size_t>(256 * channels));
    count_values(from, counts.data());
    int64_t total = 0;
    for (const int64_t each : counts) total += each;
    CHECK_EQ(total, h * w * channels);
  }
}

TEST(random_numbers_of_samples) {
  SampleRandom a(1, 2, 3, 0), b(1, 2, 3, 0), c(1, 2, 4, 0), d(1, 2, 3, 1);
  int same = 0;
  double sum = 0, squares = 0;
  for (int k = 0; k < 4000; ++k) {
    const uint32_t word = a.bits();
    CHECK_EQ(word, b.bits());
    same += (word == c.bits()) + (word == d.bits());
    const double z = a.normal();
    b.normal();
    sum += z;
    squares += z * z;
    const int64_t drawn = a.below(10);
    CHECK(drawn >= 0 && drawn < 10 && drawn == b.below(10));
    const double u = a.uniform();
    CHECK(u >= 0 && u < 1 && u == b.uniform());
  }
  CHECK(same <= 1);
  CHECK(sum / 4000 > -0.06 && sum / 4000 < 0.06);
  CHECK(squares / 4000 > 0.92 && squares / 4000 < 1.08);
}

TEST(data_arguments_of_pictures_are_checked) {
  const uint8_t pixels[24] = {};
  const int64_t shape[3] = {2, 4, 3}, strides[3] = {12, 3, 1};
  const Picture x = as_picture(pixels, shape, strides, "test");
  CHECK(x.height == 2 && x.width == 4 && x.channels == 3 && x.row == 12);
  for (const auto& wrong : std::vector<std::vector<int64_t>>{{2, 4, 0}, {2, 4, 5}, {0, 4, 3}, {2, 0, 3}})
    CHECK_THROWS(as_picture(pixels, wrong.data(), strides, "test"), ValueError);
  for (const auto& wrong : std::vector<std::vector<int64_t>>{{12, 4, 1}, {12, 3, 2}})
    CHECK_THROWS(as_picture(pixels, shape, wrong.data(), "test"), ValueError);
  Picture y = x;
  check_same_size(x, y, "test");
  y.width = 3;
  check_same_channels(x, y, "test");
  CHECK_THROWS(check_same_size(x, y, "test"), ValueError);
  y.channels = 1;
  CHECK_THROWS(check_same_channels(x, y, "test"), ValueError);
  check_inside(x, 0, 0, 2, 4, "test");
  check_inside(x, 1, 3, 1, 1, "test");
  constexpr int64_t kFar = std::numeric_limits<int64_t>::max();
  using Range = std::pair<int64_t, int64_t>;  // the first, how many
  for (const auto& [first, h] : std::vector<Range>{{1, 2}, {-1, 1}, {0, 3}, {0, -1}, {kFar, 1}, {1, kFar}})
    CHECK_THROWS(check_inside(x, first, 0, h, 1, "test"), ValueError);
  for (const auto& [first, w] : std::vector<Range>{{3, 2}, {-1, 1}, {0, 5}, {0, -1}, {kFar, 1}, {1, kFar}})
    CHECK_THROWS(check_inside(x, 0, first, 1, w, "test"), ValueError);
  check_count(3, 3, "test", "mean");
  CHECK_THROWS(check_count(2, 3, "test", "mean"), ValueError);
  CHECK(resample_of("area") == Resample::area);
  CHECK_THROWS(resample_of("box"), ValueError);
}
