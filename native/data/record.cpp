#include "data/record.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
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
  if (offset > size_) return size_;
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
  // In pieces, not mapped: the text takes more memory than the index.
  struct File {
    int number;
    ~File() {
      if (number >= 0) close(number);
    }
  } file{open(path.c_str(), O_RDONLY | O_CLOEXEC)};
  if (file.number < 0) throw std::system_error(errno, std::generic_category(), path);
  std::vector<char> piece(size_t{1} << 20);
  const auto read_piece = [&](int64_t at) {
    ssize_t count;
    do count = pread(file.number, piece.data(), piece.size(), at);
    while (count < 0 && errno == EINTR);
    if (count < 0) throw std::system_error(errno, std::generic_category(), path);
    return static_cast<int64_t>(count);
  };
  int64_t lines = 0, size = 0;
  for (int64_t count; (count = read_piece(size)) > 0; size += count)
    lines += std::count(piece.data(), piece.data() + count, '\n');
  offsets.reserve(static_cast<size_t>(lines) + 1);

  // A line: digits, tab, digits, perhaps a carriage return, newline or the end of the file.
  enum class State : uint8_t { key, offset, end } state = State::key;
  int64_t key = 0, offset = 0, line = 0;
  int digits = 0;
  const auto store = [&] {
    if (keys.empty() && key != line) {
      keys.reserve(static_cast<size_t>(lines) + 1);
      for (int64_t k = 0; k < line; ++k) keys.push_back(k);
    }
    if (key != line || !keys.empty()) keys.push_back(key);
    offsets.push_back(offset);
    ++line;
    state = State::key;
    key = offset = digits = 0;
  };
  for (int64_t at = 0; at < size;) {
    const int64_t count = read_piece(at);
    if (count == 0) break;
    for (int64_t k = 0; k < count; ++k) {
      const char c = piece[static_cast<size_t>(k)];
      if (c >= '0' && c <= '9' && state != State::end && digits < 18) {
        int64_t& number = state == State::key ? key : offset;
        number = number * 10 + (c - '0');
        ++digits;
      } else if (c == '\t' && state == State::key && digits) {
        state = State::offset;
        digits = 0;
      } else if (c == '\r' && state == State::offset && digits) {
        state = State::end;
      } else if (c == '\n' && state != State::key && digits) {
        store();
      } else {
        return line + 1;
      }
    }
    at += count;
  }
  if (state != State::key && digits)
    store();
  else if (state != State::key || digits)
    return line + 1;
  return 0;
}

}  // namespace weft
