// record.h: RecordIO files, as dmlc-core and MXNet write them, mapped into memory.
//
// A record is made of parts: u32 magic | u32 (flag << 29 | length) | length bytes | zeros up to 4 bytes. Flag
// 0: whole; 1, 2, 3: first, middle, last part of one that had the magic at 4-byte aligned offsets: there it
// was cut, and the magic left out. So the magic at an aligned offset of a file, with flag 0 or 1 after it, is
// the begin of a record and nothing else; a reader that has lost its way finds the next one by that. All
// numbers are little endian.
//
// A RecordFile never changes; any thread may read, each with Readers of its own. Files are read (pread), not
// mapped: the host's lock is given up while the disk is waited for, and a file that is cut under a reader is
// a problem, not the end of the process.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
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

  int64_t size() const noexcept { return size_; }  // as it was when the file was opened

  // Reads at any places, one after the other. All raise std::system_error if the system cannot read, and
  // Interrupted if the host wants to.
  class Reader {
   public:
    explicit Reader(const RecordFile& file) : file_(file) {}
    // What is at an offset: a record, or a problem.
    Record at(int64_t offset) { return at(offset, nullptr); }
    // The begin of the first record at or after an offset; size() if there is none.
    int64_t find(int64_t offset);
    // Its content. False: the file has been cut meanwhile.
    bool copy(const Record& record, char* to);
    // The begins of all records in [from, to). Stops at a problem, which it returns with its offset in
    // `next`; with `skip` it goes on at the next record, and counts the places. Takes time linear in to -
    // from, and what the last record takes.
    Record scan(int64_t from, int64_t to, bool skip, std::vector<int64_t>& begins, int64_t& skipped);

   private:
    class Dead;
    Record at(int64_t offset, Dead* dead);
    bool header(int64_t offset, uint32_t& magic, uint32_t& length);
    bool read(int64_t offset, char* to, int64_t count);

    const RecordFile& file_;
    std::unique_ptr<char[]> buffer_;  // of the bytes [begin_, end_)
    int64_t begin_ = 0, end_ = 0;
    std::chrono::steady_clock::time_point asked_{};  // when the host was last asked whether to go on
  };

 private:
  int64_t read(int64_t offset, char* to, int64_t count) const;

  int64_t size_ = 0;  // before file_, whose initializer sets it
  const int file_;
};

// An index file: lines "key<TAB>offset". `keys` stays empty if they are 0, 1, 2, ... Returns 0, or the number
// of the first line that is none, from 1. Raises std::system_error.
int64_t read_index(const std::string& path, std::vector<int64_t>& keys, std::vector<int64_t>& offsets);

}  // namespace weft
