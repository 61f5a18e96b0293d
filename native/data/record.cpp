#include "data/record.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <bitset>
#include <cerrno>
#include <cstring>
#include <system_error>
#include <unordered_map>

#include "engine/engine.h"

namespace weft {
namespace {

static_assert(std::endian::native == std::endian::little);

// Each file is one descriptor. A process that may have more of them than it has asked for asks for them when
// it needs them: a dataset can be thousands of files.
int open_file(const char* path) {
  const int file = open(path, O_RDONLY | O_CLOEXEC);
  rlimit limit{};
  if (file >= 0 || errno != EMFILE || getrlimit(RLIMIT_NOFILE, &limit) < 0) return file;
  limit.rlim_cur = limit.rlim_max;
  if (setrlimit(RLIMIT_NOFILE, &limit) == 0) return open(path, O_RDONLY | O_CLOEXEC);
  errno = EMFILE;
  return -1;
}

int open_records(const std::string& path, int64_t& size) {
  const int file = open_file(path.c_str());
  if (file < 0) throw std::system_error(errno, std::generic_category(), path);
  struct stat status;
  int error = fstat(file, &status) < 0 ? errno : 0;
  if (!error && !S_ISREG(status.st_mode)) error = S_ISDIR(status.st_mode) ? EISDIR : EINVAL;
  if (error) {
    close(file);
    throw std::system_error(error, std::generic_category(), path);
  }
  size = status.st_size;
  return file;
}

constexpr int64_t kPage = 4096;        // read at a place that is far from the last one
constexpr int64_t kAhead = 256 << 10;  // and at one just behind it
constexpr auto kAskHost = std::chrono::milliseconds(50);
constexpr const char* kCut = "the file has become shorter since it was opened";

constexpr int64_t padded(int64_t size) { return (size + 3) & ~int64_t{3}; }

}  // namespace

RecordFile::RecordFile(const std::string& path) : file_(open_records(path, size_)) {}
RecordFile::~RecordFile() { close(file_); }

// How many bytes there were. What is in memory is read at once; else the host's lock is given up.
int64_t RecordFile::read(int64_t offset, char* to, int64_t count) const {
  int64_t done = 0;
  const auto add = [&](ssize_t bytes) {
    if (bytes > 0) done += bytes;
    return bytes > 0;
  };
  if (count <= kAhead) {
    iovec rest{to, static_cast<size_t>(count)};
    add(preadv2(file_, &rest, 1, offset, RWF_NOWAIT));  // not all file systems can tell
    if (done == count) return done;
  }
  const Blocking blocking;
  while (done < count) {
    const ssize_t bytes = pread(file_, to + done, static_cast<size_t>(count - done), offset + done);
    if (bytes < 0 && errno != EINTR) throw std::system_error(errno, std::generic_category());
    if (!add(bytes) && bytes == 0) break;
  }
  return done;
}

// False: the file has been cut.
bool RecordFile::Reader::read(int64_t offset, char* to, int64_t count) {
  if (offset >= begin_ && offset + count <= end_) {
    std::copy_n(buffer_.get() + (offset - begin_), count, to);
    return true;
  }
  return file_.read(offset, to, count) == count;
}

bool RecordFile::Reader::header(int64_t offset, uint32_t& magic, uint32_t& length) {
  if (offset < begin_ || offset + 8 > end_) {
    const bool is_next = buffer_ && offset >= begin_ && offset <= end_;
    if (!buffer_) buffer_ = std::make_unique_for_overwrite<char[]>(kPage);
    if (is_next && end_ - begin_ == kPage) buffer_ = std::make_unique_for_overwrite<char[]>(kAhead);
    begin_ = end_ = offset;
    end_ += file_.read(offset, buffer_.get(), std::min(is_next ? kAhead : kPage, file_.size_ - offset));
    if (const auto now = std::chrono::steady_clock::now(); now - asked_ > kAskHost) {
      const bool first = asked_ == std::chrono::steady_clock::time_point{};
      asked_ = now;
      if (!first && host_hooks.interrupted && host_hooks.interrupted()) throw Interrupted();
    }
    if (offset + 8 > end_) return false;
  }
  std::memcpy(&magic, buffer_.get() + (offset - begin_), 4);
  std::memcpy(&length, buffer_.get() + (offset - begin_) + 4, 4);
  return true;
}

// Offsets of parts, behind which the record that they belong to goes wrong: a later begin whose parts lead to
// one of them need not go through what follows. Bits for pages of the file that have any.
class RecordFile::Reader::Dead {
 public:
  bool contains(int64_t offset) const {
    const auto it = pages_.find(offset / kPageBytes);
    return offset % 4 == 0 && it != pages_.end() && it->second[bit(offset)];
  }
  void add(int64_t offset) {
    if (offset % 4 == 0) pages_[offset / kPageBytes][bit(offset)] = true;
  }

 private:
  static constexpr int64_t kPageBytes = 256 << 10;
  static size_t bit(int64_t offset) { return static_cast<size_t>(offset % kPageBytes / 4); }
  std::unordered_map<int64_t, std::bitset<kPageBytes / 4>> pages_;
};

Record RecordFile::Reader::at(int64_t offset, Dead* dead) {
  const int64_t size = file_.size_;
  Record record;
  record.begin = record.next = offset;
  std::vector<int64_t> parts;
  const auto bad = [&](const char* why) {
    for (const int64_t part : parts) dead->add(part);
    record.problem = why;
    return record;
  };
  if (offset < 0 || offset >= size) return bad("no record begins here: it is outside of the file");
  int64_t here = offset;
  for (bool first = true;; first = false) {
    if (here + 8 > size) return bad("the file ends in the header of a part");
    if (!first && dead) {
      if (dead->contains(here)) return bad("a part is missing");
      parts.push_back(here);
    }
    uint32_t magic = 0, word = 0;
    if (!header(here, magic, word)) return bad(kCut);
    if (magic != kRecordMagic) return bad(first ? "the magic number is missing" : "a part is missing");
    const uint32_t flag = word >> 29;
    const int64_t length = word & kMaxRecordBytes;
    if (first ? flag > 1 : flag != 2 && flag != 3)
      return bad(first ? "a part without the first one of its record"
                       : "the last part of the record is missing");
    if (here + 8 + length > size) return bad("the file ends in the content of a part");
    record.size += length + (first ? 0 : 4);
    here += 8 + padded(length);
    if (first && flag == 1) record.split = true;
    if (flag == 0 || flag == 3) break;
  }
  record.next = here < size ? here : size;  // the last one's padding may be missing
  return record;
}

int64_t RecordFile::Reader::find(int64_t offset) {
  const int64_t size = file_.size_;
  if (offset > size) return size;
  for (int64_t here = padded(offset < 0 ? 0 : offset); here + 8 <= size; here += 4) {
    uint32_t magic = 0, word = 0;
    if (!header(here, magic, word)) return here;  // `at` says that the file has been cut
    if (magic == kRecordMagic && word >> 29 <= 1) return here;
  }
  return size;
}

// The lengths of parts may be others than when the record was found, if the file is written to: no more is
// copied than there is room for.
bool RecordFile::Reader::copy(const Record& record, char* to) {
  if (!record.split) return read(record.begin + 8, to, record.size);
  int64_t room = record.size;
  for (int64_t here = record.begin; here < record.next;) {
    uint32_t magic = 0, word = 0;
    if (!header(here, magic, word)) return false;
    const int64_t length = word & kMaxRecordBytes, cut = here == record.begin ? 0 : 4;
    if (length + cut > room) return false;
    std::memcpy(to, &kRecordMagic, static_cast<size_t>(cut));
    if (!read(here + 8, to + cut, length)) return false;
    to += length + cut;
    room -= length + cut;
    here += 8 + padded(length);
  }
  return room == 0;
}

Record RecordFile::Reader::scan(int64_t from, int64_t to, bool skip, std::vector<int64_t>& begins,
                                int64_t& skipped) {
  Dead dead;
  for (int64_t here = from; here < to && here < file_.size_;) {
    const Record record = at(here, skip ? &dead : nullptr);
    if (!record.problem) {
      begins.push_back(here);
      here = record.next;
      continue;
    }
    if (!skip || record.problem == kCut) return record;
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
