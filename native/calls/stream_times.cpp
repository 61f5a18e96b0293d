#include "calls/stream_times.h"

#include <chrono>
#include <cmath>

#include "engine/error.h"

namespace weft {
namespace {

constexpr double kFarSeconds = 1;  // a float is exact to 0.1 us of it
constexpr size_t kUnread = 64;     // pieces of a stream that are left alone

int64_t now() noexcept {
  return std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1);
}

int64_t nanoseconds(double seconds) noexcept { return std::llround(seconds * 1e9); }

}  // namespace

std::vector<StreamTimes::Piece>& StreamTimes::begun() {
  thread_local std::vector<Piece> pieces;
  return pieces;
}

void StreamTimes::open(size_t limit) {
  {
    const std::lock_guard guard(mutex_);
    is_open_ = true;
    room_ = limit;
    dropped_ = 0;
    clocks_.clear();
    spans_.clear();
  }
  stream_watch.store(this, std::memory_order_release);
}

std::vector<StreamSpan> StreamTimes::close(uint64_t& dropped) {
  stream_watch.store(nullptr, std::memory_order_release);
  const std::lock_guard guard(mutex_);
  is_open_ = false;
  for (auto& [stream, clock] : clocks_) read(clock, true);
  clocks_.clear();
  dropped += dropped_;
  return std::exchange(spans_, {});
}

std::vector<StreamSpan> StreamTimes::peek() {
  const std::lock_guard guard(mutex_);
  for (auto& [stream, clock] : clocks_) read(clock, false);
  return spans_;
}

void StreamTimes::began(int stream, const Op* op, const Engine* engine) noexcept {
  Piece piece;
  piece.span = {0, 0, op ? op->trace_id : 0, engine, stream};
  try {
    DeviceBackend& backend = backend_of_stream(stream);
    {
      const std::lock_guard guard(mutex_);
      if (Clock& clock = clocks_[stream]; !clock.mark) {
        std::unique_ptr<StreamMark> mark = backend.mark(stream);
        mark->wait();
        clock.time = now();
        clock.mark = std::move(mark);
      }
    }
    piece.start = backend.mark(stream);
  } catch (...) {  // the device has failed, which those who use it are told
    piece.start = nullptr;
  }
  begun().push_back(std::move(piece));
}

void StreamTimes::ended() noexcept {
  if (begun().empty()) return;
  Piece piece = std::move(begun().back());
  begun().pop_back();
  try {
    if (piece.start) piece.end = backend_of_stream(piece.span.stream).mark(piece.span.stream);
  } catch (...) {
    piece.end = nullptr;
  }
  const std::lock_guard guard(mutex_);
  if (!is_open_) return;
  if (!piece.end || room_ == 0) {
    ++dropped_;
    return;
  }
  --room_;
  Clock& clock = clocks_[piece.span.stream];
  clock.pieces.push_back(std::move(piece));
  if (clock.pieces.size() > kUnread) read(clock, false);
}

// Under mutex_. Pieces of several threads may be on a stream in another order than their marks here.
void StreamTimes::read(Clock& clock, bool waits) {
  while (!clock.pieces.empty()) {
    Piece& piece = clock.pieces.front();
    if (!waits && !piece.end->has_passed()) return;
    try {
      piece.end->wait();
      const double since = piece.start->seconds_since(*clock.mark);
      piece.span.start = clock.time + nanoseconds(since);
      piece.span.end = piece.span.start + nanoseconds(piece.end->seconds_since(*piece.start));
      spans_.push_back(piece.span);
      if (since > kFarSeconds) {
        clock.time = piece.span.start;
        clock.mark = std::move(piece.start);
      }
    } catch (const DeviceError&) {
      ++dropped_;
    }
    clock.pieces.pop_front();
  }
}

}  // namespace weft
