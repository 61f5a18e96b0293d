// stream_times.h: when streams of devices were at work, for the Recorder: a mark before and one behind what
// is enqueued (engine/device_kind.h).
//
// Times of a device are differences. The first mark of a stream is waited for, which says what its time is on
// the host's clock, to some microseconds. Later ones are read when the stream has passed them, and counted
// from marks that are not far back, since the driver gives a difference as a float.
//
// `mutex_` guards all but the pieces that a thread has begun, which are its own.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <vector>

#include "engine/device_kind.h"
#include "engine/fork.h"

namespace weft {

struct StreamSpan {
  int64_t start, end;  // nanoseconds of the host's steady clock
  uint64_t operation;  // Op::trace_id; 0: none
  const Engine* engine;
  int stream;
};

class StreamTimes final : public StreamWatch {
 public:
  void open(size_t limit);
  // All spans; waits for the streams. dropped: is raised by the number of those that there was no room for,
  // or whose device has failed.
  std::vector<StreamSpan> close(uint64_t& dropped);
  // Those that have ended.
  std::vector<StreamSpan> peek();

  void began(int stream, const Op* op, const Engine* engine) noexcept override;
  void ended() noexcept override;

 private:
  struct Piece {
    std::unique_ptr<StreamMark> start, end;
    StreamSpan span;
  };
  struct Clock {
    std::shared_ptr<const StreamMark> mark;
    int64_t time = 0;
    std::deque<Piece> pieces;  // not read yet
  };
  static std::vector<Piece>& begun();
  void read(Clock& clock, bool waits);

  ForkMutex mutex_;
  bool is_open_ = false;
  size_t room_ = 0;
  uint64_t dropped_ = 0;
  std::map<int, Clock> clocks_;  // by stream
  std::vector<StreamSpan> spans_;
};

}  // namespace weft
