#include "data/record.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <bit>
#include <cerrno>
#include <cstring>
#include <system_error>

namespace weft {
namespace {

static_assert(std::endian::native == std::endian::little);

// Maps a file for reading; null for an empty one.
const char* map_file(const std::string& path, int64_t& size) {
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) throw std::system_error(errno, std::generic_category(), path);
  struct stat status;
  void* data = nullptr;
  int error = fstat(file, &status) < 0 ? errno : 0;
  if (!error && !S_ISREG(status.st_mode)) error = S_ISDIR(status.st_mode) ? EISDIR : EINVAL;
  if (!error && status.st_size > 0) {
    data = mmap(nullptr, static_cast<size_t>(status.st_size), PROT_READ, MAP_SHARED, file, 0);
    if (data == MAP_FAILED) error = errno;
  }
  close(file);
  if (error) throw std::system_error(error, std::generic_category(), path);
  size = status.st_size;
  return static_cast<const char*>(data);
}

constexpr int64_t padded(int64_t size) { return (size + 3) & ~int64_t{3}; }

}  // namespace

RecordFile::RecordFile(const std::string& path) : data_(map_file(path, size_)) {}

RecordFile::~RecordFile() {
  if (data_) munmap(const_cast<char*>(data_), static_cast<size_t>(size_));
}

uint32_t RecordFile::word(int64_t offset) const noexcept {
  uint32_t value;
  std::memcpy(&value, data_ + offset, 4);
  return value;
}

Record RecordFile::at(int64_t offset) const noexcept {
  Record record;
  record.begin = record.next = offset;
  const auto bad = [&](const char* why) {
    record.problem = why;
    return record;
  };
  if (offset < 0 || offset >= size_) return bad("no record begins here: it is outside of the file");
  int64_t here = offset;
  for (bool first = true;; first = false) {
    if (here + 8 > size_) return bad("the file ends in the header of a part");
    if (word(here) != kRecordMagic) return bad(first ? "the magic number is missing" : "a part is missing");
    const uint32_t flag = word(here + 4) >> 29;
    const int64_t length = word(here + 4) & kMaxRecordBytes;
    if (first ? flag > 1 : flag != 2 && flag != 3)
      return bad(first ? "a part without the first one of its record"
                       : "the last part of the record is missing");
    if (here + 8 + length > size_) return bad("the file ends in the content of a part");
    record.size += length + (first ? 0 : 4);
    here += 8 + padded(length);
    if (first && flag == 1) record.split = true;
    if (flag == 0 || flag == 3) break;
  }
  record.next = here < size_ ? here : size_;  // the last one's padding may be missing
  return record;
}

int64_t RecordFile::find(int64_t offset) const noexcept {
  for (int64_t here = padded(offset < 0 ? 0 : offset); here + 8 <= size_; here += 4) {
    if (word(here) == kRecordMagic && word(here + 4) >> 29 <= 1) return here;
  }
  return size_;
}

void RecordFile::copy(const Record& record, char* to) const noexcept {
  if (!record.split) {
    std::memcpy(to, content(record), static_cast<size_t>(record.size));
    return;
  }
  for (int64_t here = record.begin; here < record.next;) {
    const int64_t length = word(here + 4) & kMaxRecordBytes;
    if (here != record.begin) {
      std::memcpy(to, &kRecordMagic, 4);
      to += 4;
    }
    std::memcpy(to, data_ + here + 8, static_cast<size_t>(length));
    to += length;
    here += 8 + padded(length);
  }
}

Record RecordFile::scan(int64_t from, int64_t to, bool skip, std::vector<int64_t>& begins,
                        int64_t& skipped) const {
  for (int64_t here = from; here < to && here < size_;) {
    const Record record = at(here);
    if (!record.problem) {
      begins.push_back(here);
      here = record.next;
      continue;
    }
    if (!skip) return record;
    ++skipped;
    here = find(here + 4);
  }
  return {};
}

int64_t read_index(const std::string& path, std::vector<int64_t>& keys, std::vector<int64_t>& offsets) {
  int64_t size = 0;
  const char* const data = map_file(path, size);
  struct Unmap {
    const char* data;
    int64_t size;
    ~Unmap() {
      if (data) munmap(const_cast<char*>(data), static_cast<size_t>(size));
    }
  } unmap{data, size};
  const char *here = data, *const end = data + size;
  int64_t lines = 0;
  for (const char* at = here; at < end; ++lines) {
    const void* newline = std::memchr(at, '\n', static_cast<size_t>(end - at));
    at = newline ? static_cast<const char*>(newline) + 1 : end;
  }
  offsets.reserve(static_cast<size_t>(lines));
  const auto number = [&](int64_t& value) {
    const char* const begin = here;
    for (value = 0; here < end && *here >= '0' && *here <= '9' && here - begin < 18; ++here)
      value = value * 10 + (*here - '0');
    return here != begin;
  };
  for (int64_t line = 0; here < end; ++line) {
    int64_t key, offset;
    if (!number(key) || here >= end || *here++ != '\t' || !number(offset)) return line + 1;
    if (here < end && *here == '\r') ++here;
    if (here < end && *here++ != '\n') return line + 1;
    if (keys.empty() && key != line) {
      keys.reserve(static_cast<size_t>(lines));
      for (int64_t k = 0; k < line; ++k) keys.push_back(k);
    }
    if (key != line || !keys.empty()) keys.push_back(key);
    offsets.push_back(offset);
  }
  return 0;
}

}  // namespace weft
