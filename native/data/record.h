// record.h: RecordIO files, as dmlc-core and MXNet write them, mapped into memory.
//
// A record is made of parts: u32 magic | u32 (flag << 29 | length) | length bytes | zeros up to 4 bytes. Flag
// 0: whole; 1, 2, 3: first, middle, last part of one that had the magic at 4-byte aligned offsets: there it
// was cut, and the magic left out. So the magic at an aligned offset of a file, with flag 0 or 1 after it, is
// the begin of a record and nothing else; a reader that has lost its way finds the next one by that. All
// numbers are little endian.
//
// A RecordFile never changes; any thread may read. A file that is truncated while it is mapped ends the
// process (SIGBUS), as with every mapping.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace weft {

inline constexpr uint32_t kRecordMagic = 0xced7230a;
inline constexpr int64_t kMaxRecordBytes = (int64_t{1} << 29) - 1;

struct Record {
  int64_t begin = 0;  // offset of its first part's header
  int64_t next = 0;   // of what follows it
  int64_t size = 0;   // bytes of content, magics between parts included
  bool split = false;
  const char* problem = nullptr;  // why there is no record here; static text
};

class RecordFile {
 public:
  explicit RecordFile(const std::string& path);  // raises std::system_error
  ~RecordFile();
  RecordFile(const RecordFile&) = delete;

  int64_t size() const noexcept { return size_; }
  // What is at an offset: a record, or a problem.
  Record at(int64_t offset) const noexcept;
  // The begin of the first record at or after an offset; size() if there is none.
  int64_t find(int64_t offset) const noexcept;
  // Its content; of one that is not split a pointer into the file.
  const char* content(const Record& record) const noexcept { return data_ + record.begin + 8; }
  void copy(const Record& record, char* to) const noexcept;
  // The begins of all records in [from, to). Stops at a problem, which it returns with its offset in `next`;
  // with `skip` it goes on at the next record, and counts the places.
  Record scan(int64_t from, int64_t to, bool skip, std::vector<int64_t>& begins, int64_t& skipped) const;

 private:
  uint32_t word(int64_t offset) const noexcept;

  int64_t size_ = 0;  // before data_, whose initializer sets it
  const char* data_;
};

// An index file: lines "key<TAB>offset". `keys` stays empty if they are 0, 1, 2, ... Returns 0, or the number
// of the first line that is none, from 1. Raises std::system_error.
int64_t read_index(const std::string& path, std::vector<int64_t>& keys, std::vector<int64_t>& offsets);

}  // namespace weft
