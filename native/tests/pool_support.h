// pool_support.h: what the tests of the memory pool share.
#pragma once

#include <cstdio>
#include <map>

#include "storage/pool.h"
#include "tests/support.h"

namespace weft::testing {

constexpr uint64_t kKiB = 1024, kMiB = 1024 * kKiB, kGiB = 1024 * kMiB;

// From 1 to 2^bits bytes; each power of two as likely as any other.
inline size_t log_uniform(Random& random, int bits) {
  const size_t low = size_t{1} << random.below(bits);
  return low + random.next() % low + random.next() % 2;
}

struct Piece {
  unsigned char* memory;
  size_t bytes;
  unsigned char mark;
};

// What a pool handed out, filled with marks; finds overlaps and lost content.
class Shadow {
 public:
  explicit Shadow(Pool& pool) : pool_(pool) {}
  ~Shadow() { clear(); }

  void add(size_t bytes, unsigned char mark) {
    auto* memory = static_cast<unsigned char*>(pool_.allocate(bytes));
    CHECK(memory != nullptr);
    CHECK_EQ(reinterpret_cast<uintptr_t>(memory) % Pool::kAlignment, uintptr_t{0});
    const auto above = ends_.upper_bound(memory);
    CHECK(above == ends_.end() || above->second >= memory + bytes);
    ends_[memory + bytes] = memory;
    touch({memory, bytes, mark});
    pieces_.push_back({memory, bytes, mark});
    bytes_ += bytes;
  }
  void drop(size_t index) {
    const Piece piece = pieces_[index];
    CHECK(intact(piece));
    ends_.erase(piece.memory + piece.bytes);
    pieces_[index] = pieces_.back();
    pieces_.pop_back();
    bytes_ -= piece.bytes;
    pool_.release(piece.memory);
  }
  void clear() {
    while (!pieces_.empty()) drop(pieces_.size() - 1);
  }
  void check() const {
    for (const Piece& piece : pieces_) CHECK(intact(piece));
  }
  size_t count() const { return pieces_.size(); }
  uint64_t bytes() const { return bytes_; }

 private:
  // All of a small block; of a large one the ends, and a byte of each page.
  static size_t step(const Piece& piece) { return piece.bytes <= 8 * kKiB ? 1 : 4093; }
  static void touch(const Piece& piece) {
    for (size_t i = 0; i < piece.bytes; i += step(piece)) piece.memory[i] = piece.mark;
    piece.memory[piece.bytes - 1] = piece.mark;
  }
  static bool intact(const Piece& piece) {
    for (size_t i = 0; i < piece.bytes; i += step(piece))
      if (piece.memory[i] != piece.mark) return false;
    return piece.memory[piece.bytes - 1] == piece.mark;
  }

  Pool& pool_;
  std::vector<Piece> pieces_;
  std::map<unsigned char*, unsigned char*> ends_;  // the end of each piece, and its beginning
  uint64_t bytes_ = 0;
};

inline std::string failure_of(Pool& pool, size_t bytes) {
  try {
    pool.allocate(bytes);
  } catch (const OutOfMemory& error) {
    return error.what();
  }
  return {};
}

inline std::vector<std::string>& violations() {
  static std::vector<std::string> texts;
  return texts;
}
inline void collect(const std::string& text) { violations().push_back(text); }

inline bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// True if exactly one violation was reported since the last call, and its text has this part.
inline bool one_violation(const std::string& part) {
  const auto texts = std::exchange(violations(), {});
  const bool is_one = texts.size() == 1 && contains(texts.front(), part);
  if (!is_one) std::fprintf(stderr, "expected '%s', got %s\n", part.c_str(), show(texts).c_str());
  return is_one;
}

inline PoolOptions checking(uint64_t limit = 0) {
  return {.limit_bytes = limit, .check = true, .on_violation = collect};
}

}  // namespace weft::testing
