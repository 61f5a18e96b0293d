// lazy_log.h: lazy evaluation without the language: what is put off becomes words, and the words find its
// program.
//
// A Log belongs to a thread's lazy evaluation. Each operation is written as words: its plan; for each array
// its piece of memory, in the order in which pieces were met, and the offset there; numbers, unless they
// are inputs. Two segments of the same words are the same program, for any memory and inputs. A
// segment ends when a value is read; its program is found by its words, and by which results are still
// held. Only for new words is the language called (host::program_of), which gets the operations as a
// recorder would. All of it is guarded by the lock of the language.
//
// Nothing that the language cannot write down may get in: `locate` refuses what
// weft/graph/functionalization.py would refuse, and what was put off is then done first.
#pragma once

#include <optional>
#include <unordered_map>
#include <vector>

#include "calls/plan_table.h"
#include "calls/tape.h"

namespace weft {

// An array of an operation that was put off.
struct LoggedArray {
  Tensor x;             // without its memory where that belongs to its arrays alone
  uint64_t serial = 0;  // of its memory; 0: only its sizes matter
  Device device;
};

// An operation as a segment's program needs it: what a method of ArrayRecorder was given.
struct LoggedOperation {
  enum class Kind : uint8_t { launch, fill, copy, range, draw, permute } kind;
  Draw draw{};                                      // Kind::draw
  const Plan* plan{};                               // Kind::launch
  const Site* site{};                               // the line that called it, if the segment is new
  std::vector<LoggedArray> arrays;                  // that are read
  std::vector<std::optional<LoggedArray>> results;  // that are written; of a launch none for views
  // Those that are inputs have their number in the segment, from 1, as their origin.
  std::vector<Scalar> numbers;
};

// The argument of host::program_of. live_serials: of memory that the segment made and that is still in use.
struct LoggedSegment {
  _object* target;
  std::vector<LoggedOperation> operations;
  std::vector<uint64_t> live_serials;
  uint64_t mark;  // the latest serial before it began
};

// plan null: nothing is left to be done. inputs are in memory of the segment; numbers: origins.
struct LoggedProgram {
  Ref<Plan> plan;
  std::vector<Tensor> inputs;
  std::vector<size_t> numbers;
};

class Log final : public LaunchRecorder {
 public:
  // For an object that makes programs of it, and outlives it. reports_reads: it is called where a value is
  // read.
  Log(_object* target, bool reports_reads) noexcept : target_(target), reports_reads_(reports_reads) {}
  Log(Log&&) = default;
  Log& operator=(Log&&) = default;

  _object* target() const noexcept override { return target_; }
  bool defers() const noexcept override { return true; }
  bool on_launch(const Plan& plan, std::span<const Tracked* const> inputs, std::span<const Scalar> numbers,
                 std::span<const Tracked> results) override;
  bool on_fill(const Tensor& to, Scalar value) override;
  bool on_copy(const Tensor& to, const Tensor& from) override;
  bool on_range(const Tensor& to, Scalar start, Scalar step) override;
  bool on_draw(const Tensor& to, Draw kind, Scalar a, Scalar b) override;
  bool on_permute(const Tensor& to, const Tensor& from) override;
  void on_read(const Tensor& x) override;
  void on_await(const Tensor& x) override { on_read(x); }
  void on_random_state() override { flush(); }

  // Does what was put off, and forgets it.
  void flush();

  uint64_t segments() const noexcept { return segments_; }
  // Of results that nothing could see any more when their segments ended.
  uint64_t unseen_bytes() const noexcept { return unseen_bytes_; }

  // Of all logs: operations put off, segments run, and those of them that had no program yet.
  static inline uint64_t put_off = 0, segments_run = 0, segment_misses = 0;

 private:
  using Kind = LoggedOperation::Kind;

  // One operation: where its words are, and what they cannot hold.
  struct Operation {
    Kind kind;
    size_t at;          // its first word
    size_t numbers;     // inputs before it
    uint64_t hash = 0;  // of all words up to its last one
    Site site{};
    Ref<Plan> plan{};                    // Kind::launch
    size_t arrays = 0, all_numbers = 0;  // that the plan was given
  };

  // A piece of memory. That of a large result belongs to its arrays alone: when the last of them goes, it
  // returns to the pool, and later results of the same segment may get it. The program needs none of it: what
  // is not wanted at the end is not an output. So a segment takes the memory that its operations would, one
  // by one.
  struct Piece {
    Ref<Chunk> chunk;  // null: released to its arrays, found again when the segment ends
    uint64_t serial;
    char* data;
    size_t bytes;
    Device device;
    bool is_new;  // made since the log began
    struct Window {
      uintptr_t first, end;
      DType dtype;
    };
    std::vector<Window> windows;  // that do not overlap, and contain all others
  };

  struct Segment;
  class Segments;
  struct Reader;
  static Segments& all_segments();

  template <class F>
  bool try_to_add(Kind kind, F&& write);
  bool add(const Tensor& x, bool is_written);
  void add(const Scalar& value, bool is_input);
  size_t locate(const Tensor& x, bool is_written);
  size_t piece_of(const Tensor& x, bool is_written);
  size_t number_of_piece(const Chunk& chunk) const;
  size_t bytes_alive();
  void forget_pieces_from(size_t count);
  void clear();
  void run();
  Segment request_program() const;

  _object* target_;
  bool reports_reads_;
  uint64_t mark_ = Chunk::last_serial();
  PlanKey key_;
  std::vector<Operation> operations_;
  std::vector<Scalar> numbers_;  // inputs
  std::vector<Piece> pieces_;
  std::unordered_map<uint64_t, size_t> numbers_of_;  // by serial
  uint64_t segments_ = 0, unseen_bytes_ = 0;
  size_t bytes_ = 0;     // of pieces made since the log began
  bool shared_ = false;  // the operation at hand uses memory of others
};

}  // namespace weft
