// log.cpp: lazy evaluation without Python: what is put off becomes words, and the words find its program.
//
// A Log belongs to a thread's lazy evaluation. Each operation is written as words: its plan; for each array
// which piece of memory it lies in, in the order in which pieces were met, and where; numbers, unless they
// are inputs. Two segments of the same words are the same program, whatever the memory and the inputs are. A
// segment ends when somebody looks; its program is found by its words, and by which results somebody still
// holds. Only for words that are new is the object of Python's asked, which gets the operations as a Scribe
// would (weft/imperative/lazy.py). All of it is guarded by the GIL.
//
// Nothing that the object cannot write down may get in: `place` refuses what weft/graph/functionalization.py
// would refuse, and what was put off is then done first.
#include "bindings/log.h"

#include <bit>
#include <deque>
#include <numeric>
#include <unordered_map>
#include <unordered_set>

#include "bindings/operator.h"

namespace weft {
namespace {

constexpr size_t kOperations = 10'000;      // put off before they are done unasked
constexpr size_t kBytes = size_t{4} << 30;  // of memory of results that wait
constexpr size_t kLargeBytes = 64 << 10;    // from here on memory is not kept for the log alone
constexpr size_t kBeginnings = 1 << 16;     // of segments, likewise
constexpr size_t kSegments = 512;           // programs that are known; the oldest are forgotten
constexpr int kPieceBits = 27;              // of the number of a piece of memory in a key, beside its type
static_assert(kPieceBits + kTypeBits <= 64);

enum class Kind : uint8_t { launch, fill, copy, range, draw, permute };

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
// is not wanted at the end is no output. So a segment takes the memory that its operations would, one by one.
struct Piece {
  Ref<Chunk> chunk;  // null: released to its arrays (Log::release), found again when the segment ends
  uint64_t serial;
  char* data;
  size_t bytes;
  Device device;
  bool born;  // since the log began
  struct Window {
    uintptr_t first, end;
    DType dtype;
  };
  std::vector<Window> windows;  // that do not overlap: what the rest lies in
};

// Where an input of a segment's program lies.
struct Input {
  size_t piece;
  int64_t offset;  // bytes
  DType dtype;
  Shape shape, strides;
};

struct Segment {
  Ref<Plan> plan;  // null: nothing is left to be done
  std::vector<Input> inputs;
  std::vector<size_t> numbers;
  std::vector<Ref<Plan>> words;  // the plans that the words name by their addresses
};

class Segments {
 public:
  Segment* find(const PlanKey& key) {
    const auto found = table_.find(key);
    return found == table_.end() ? nullptr : &found->second;
  }
  void add(PlanKey key, Segment segment) {
    const auto [place, is_new] = table_.try_emplace(std::move(key), std::move(segment));
    if (!is_new) return;  // another thread made it meanwhile
    order_.push_back(&place->first);
    if (order_.size() <= kSegments) return;
    table_.erase(table_.find(*order_.front()));
    order_.pop_front();
  }

  // Whether some segment begins like this. If so, its program exists, and nobody will ask for lines of code;
  // one that was forgotten may still be said to be known, and its errors then name no line.
  bool knows(uint64_t hash) const { return beginnings_.contains(hash); }
  void add_beginning(uint64_t hash) {
    if (beginnings_.size() > kBeginnings) beginnings_.clear();
    beginnings_.insert(hash);
  }

 private:
  std::unordered_set<uint64_t> beginnings_;
  std::unordered_map<PlanKey, Segment, PlanKeyHash> table_;
  std::deque<const PlanKey*> order_;
};

Segments& segments() {
  static auto* const all = new Segments;  // plans hold objects of Python's: never ended
  return *all;
}

uint64_t put_off = 0, segments_run = 0, segment_misses = 0;

bool is_dense(const Tensor& x) {
  if (x.contiguous()) return true;
  int order[kMaxDims];
  int count = 0;
  for (int d = 0; d < x.ndim; ++d)
    if (x.shape[d] != 1) order[count++] = d;
  std::sort(order, order + count, [&](int a, int b) {
    return std::pair(x.strides[a], x.shape[a]) < std::pair(x.strides[b], x.shape[b]);
  });
  int64_t step = 1;
  for (int i = 0; i < count; ++i) {
    if (x.strides[order[i]] != step) return false;
    step *= x.shape[order[i]];
  }
  return true;
}

class Log final : public Reporter {
 public:
  Log(nb::handle target, bool watched) : target_(target.ptr()), watched_(watched) {}
  Log(Log&&) = default;
  Log& operator=(Log&&) = default;

  nb::object target() const override { return nb::borrow(target_); }
  bool defers() const noexcept override { return true; }
  void met(PyObject*) override {}

  bool launched(const Plan& plan, std::span<const Tracked* const> inputs, std::span<const Scalar> numbers,
                std::span<const Tracked> results) override {
    return try_to_add(Kind::launch, [&] {
      Operation& launch = operations_.back();
      launch.plan = Ref<Plan>(const_cast<Plan*>(&plan));
      launch.arrays = inputs.size();
      launch.all_numbers = numbers.size();
      key_.push_back(reinterpret_cast<uintptr_t>(&plan));
      for (const Tracked* x : inputs)
        if (!add(x->tensor, false)) return false;
      for (const Scalar& value : numbers) add(value, value.kind == Scalar::Kind::real);
      for (size_t j = 0; j < results.size(); ++j)
        if (!is_alias(*plan.program, j) && !add(results[j].tensor, true)) return false;
      return true;
    });
  }
  bool filled(const Tensor& to, Scalar value) override {
    return changed(to, try_to_add(Kind::fill, [&] {
                     add(value, value.origin != 0);
                     return add(to, true);
                   }));
  }
  bool copied(const Tensor& to, const Tensor& from) override {
    return changed(to, try_to_add(Kind::copy, [&] { return add(from, false) && add(to, true); }));
  }
  bool counted(const Tensor& to, Scalar start, Scalar step) override {
    return changed(to, try_to_add(Kind::range, [&] {
                     add(start, false);
                     add(step, false);
                     return add(to, true);
                   }));
  }
  bool drawn(const Tensor& to, Draw kind, Scalar a, Scalar b) override {
    return changed(to, try_to_add(Kind::draw, [&] {
                     key_.push_back(static_cast<uint64_t>(kind));
                     add(a, a.kind == Scalar::Kind::real);
                     add(b, b.kind == Scalar::Kind::real);
                     return add(to, true);
                   }));
  }
  bool permuted(const Tensor& to, const Tensor& from) override {
    return changed(to, try_to_add(Kind::permute, [&] { return add(from, false) && add(to, true); }));
  }
  void read(const Tensor& x) override {
    if (!number_of_piece(*x.chunk)) return;
    if (watched_) {
      const Unobserved quiet;
      nb::handle(target_).attr("note_break")();
    }
    flush();
  }
  void awaited(const Tensor& x) override { read(x); }
  void random_state() override { flush(); }

  uint64_t done() const noexcept { return segments_; }
  uint64_t unseen_bytes() const noexcept { return unseen_bytes_; }

  // Does what was put off, and forgets it.
  void flush() {
    if (operations_.empty()) return clear();
    const Unobserved quiet;
    // What nobody else can see any more need not be computed.
    uint64_t unseen = unseen_bytes_;
    for (Piece& piece : pieces_) {
      if (!piece.chunk) piece.chunk = Chunk::find(piece.serial);
      const bool wanted = piece.born && piece.chunk && piece.chunk->references() > 1;
      if (piece.born && !wanted) unseen += piece.bytes;
      key_.push_back(wanted);
    }
    const uint64_t done = segments_ + 1;
    Log now{nb::handle(target_), watched_};
    std::swap(now, *this);
    unseen_bytes_ = unseen;
    segments_ = done;
    mark_ = Chunk::last_serial();
    now.run();
  }

 private:
  // Whether one more operation was added; `write` adds its words, or says that it cannot.
  template <class F>
  bool try_to_add(Kind kind, F&& write) {
    if (operations_.size() == kOperations || (bytes_ > kBytes && bytes_alive() > kBytes)) flush();
    for (int attempt = 0; attempt < 2; ++attempt) {
      const size_t words = key_.size(), count = pieces_.size();
      operations_.push_back({kind, words, numbers_.size()});
      key_.push_back(static_cast<uint64_t>(kind));
      shared_ = false;
      if (write()) {
        uint64_t hash = words ? operations_[operations_.size() - 2].hash : 0;
        for (size_t k = words; k < key_.size(); ++k)
          hash = (std::rotl(hash, 23) ^ key_[k]) * 0x9e3779b97f4a7c15;
        operations_.back().hash = hash;
        if (!segments().knows(hash)) operations_.back().site = Site::here();
        ++put_off;
        if (shared_) flush();  // others write there without asking: now is when it was asked for
        return true;
      }
      // Not with what is known. Again with nothing known; if that does not help, it is done at once.
      numbers_.resize(operations_.back().numbers);
      key_.resize(words);
      operations_.pop_back();
      forget_pieces_from(count);
      flush();
    }
    return false;
  }

  // What gradients have saved is overwritten as seen from Python, whenever it will happen.
  static bool changed(const Tensor& to, bool is_added) {
    if (is_added) to.chunk->writes.fetch_add(1, std::memory_order_relaxed);
    return is_added;
  }

  bool add(const Tensor& x, bool is_written) {
    const size_t piece = x.chunk ? place(x, is_written) : 0;
    if (x.chunk && !piece) return false;
    key_.push_back(piece | type_key(x, x.chunk ? x.device() : Device{}) << kPieceBits);
    if (piece) {
      key_.push_back(static_cast<uint64_t>(x.data - x.chunk->data));
      key_.push_back(pieces_[piece - 1].born);
    }
    for (int d = 0; d < x.ndim; ++d) key_.push_back(static_cast<uint64_t>(x.shape[d]));
    for (int d = 0; d < x.ndim; ++d) key_.push_back(static_cast<uint64_t>(x.strides[d]));
    return true;
  }

  void add(const Scalar& value, bool is_input) {
    key_.push_back(static_cast<uint64_t>(value.kind) << 1 | is_input);
    if (is_input) {
      numbers_.push_back(value);
      return;
    }
    key_.push_back(value.kind == Scalar::Kind::boolean ? value.boolean : value.unsigned_integer);
  }

  // The piece that the window lies in, counted from 1; 0: it overlaps others in a way that no graph
  // describes.
  size_t place(const Tensor& x, bool is_written) {
    const size_t number = piece_of(x, is_written);
    Piece& piece = pieces_[number - 1];
    shared_ |= x.chunk->shares.load(std::memory_order_relaxed) != 0;
    auto [first, end] = addresses_of(x.view());
    if (!x.size) first = end = reinterpret_cast<uintptr_t>(x.data);
    for (const Piece::Window& w : piece.windows) {
      if (w.first <= first && end <= w.end)
        return w.dtype == x.dtype && (first - w.first) % x.itemsize() == 0 ? number : 0;
      if (first < w.end && w.first < end) return 0;
    }
    if (is_written && piece.born && !is_dense(x)) return 0;
    piece.windows.push_back({first, end, x.dtype});
    return number;
  }

  size_t piece_of(const Tensor& x, bool is_written) {
    if (const size_t known = number_of_piece(*x.chunk)) return known;
    Chunk& chunk = *x.chunk;
    const bool born = chunk.serial > mark_ && chunk.serial >> 40 == mark_ >> 40;
    // What is read first has a content that no operation of the segment gives: the program reads the memory.
    const bool is_released = born && is_written && chunk.bytes >= kLargeBytes;
    if (is_released) chunk.watch();
    pieces_.push_back({is_released ? Ref<Chunk>() : x.chunk,
                       chunk.serial,
                       chunk.data,
                       chunk.bytes,
                       chunk.device,
                       born,
                       {}});
    numbers_of_.emplace(chunk.serial, pieces_.size());
    if (born) bytes_ += chunk.bytes;
    return pieces_.size();
  }

  // Of memory of results that wait; those that nobody holds any more are gone.
  size_t bytes_alive() {
    bytes_ = 0;
    for (const Piece& piece : pieces_)
      if (piece.born && (piece.chunk || Chunk::is_alive(piece.serial))) bytes_ += piece.bytes;
    return bytes_;
  }

  size_t number_of_piece(const Chunk& chunk) const {
    const auto found = numbers_of_.find(chunk.serial);
    return found == numbers_of_.end() ? 0 : found->second;
  }

  void forget_pieces_from(size_t count) {
    while (pieces_.size() > count) {
      numbers_of_.erase(pieces_.back().serial);
      pieces_.pop_back();
    }
  }

  void clear() {
    key_.clear();
    operations_.clear();
    numbers_.clear();
    forget_pieces_from(0);
    bytes_ = 0;
    mark_ = Chunk::last_serial();
  }

  // Of a log whose operations are all there will be.

  void run() {
    ++segments_run;
    Segment* segment = segments().find(key_);
    if (!segment) {
      ++segment_misses;
      segments().add(key_, ask());
      for (const Operation& each : operations_) segments().add_beginning(each.hash);
      segment = segments().find(key_);
    }
    if (!segment->plan) return;
    const Ref<Plan> plan = segment->plan;  // the table may change while it runs
    std::vector<Tracked> windows;
    windows.reserve(segment->inputs.size());
    std::vector<const Tracked*> inputs;
    for (const Input& input : segment->inputs) {
      const Ref<Chunk>& chunk = pieces_[input.piece].chunk;
      Tensor whole;
      whole.chunk = chunk;
      whole.dtype = input.dtype;
      inputs.push_back(
          &windows.emplace_back(whole.as_strided(chunk->data + input.offset, input.shape, input.strides)));
    }
    std::vector<Scalar> numbers;
    for (size_t number : segment->numbers) numbers.push_back(numbers_[number]);
    std::vector<Tracked> made(plan->program->outputs.size());
    const KeptCounts counts(inputs, {});
    call_plan(plan, inputs, numbers, {}, made);
  }

  Segment ask() const {
    nb::list told;
    Reader words{*this};
    for (const Operation& each : operations_) told.append(words.operation(each));
    nb::list kept;
    const size_t first = key_.size() - pieces_.size();
    for (size_t k = 0; k < pieces_.size(); ++k)
      if (key_[first + k]) kept.append(pieces_[k].serial);
    const nb::object found = nb::handle(target_).attr("program_of")(told, kept, mark_);
    Segment segment;
    for (const Operation& each : operations_)
      if (each.plan) segment.words.push_back(each.plan);
    if (found.is_none()) return segment;
    segment.plan = nb::cast<PyPlan&>(nb::object(found[0])).plan;
    for (nb::handle tensor : found[1]) segment.inputs.push_back(input_of(tensor_of(tensor, "lazy")));
    for (nb::handle origin : found[2]) segment.numbers.push_back(nb::cast<size_t>(origin) - 1);
    return segment;
  }

  Input input_of(const Tensor& x) const {
    Input input{number_of_piece(*x.chunk) - 1, x.data - x.chunk->data, x.dtype, {}, {}};
    for (int d = 0; d < x.ndim; ++d) {
      input.shape.sizes[input.shape.ndim++] = x.shape[d];
      input.strides.sizes[input.strides.ndim++] = x.strides[d];
    }
    return input;
  }

  // Operations as a Scribe's methods get them: (method, arguments).
  struct Reader {
    const Log& log;
    size_t at = 0, number = 0;

    uint64_t word() { return log.key_[at++]; }

    nb::object array(Device device = {}) {
      const uint64_t first = word();
      const size_t piece = first & ((uint64_t{1} << kPieceBits) - 1);
      Tensor x;
      x.dtype = dtype_of_key(first >> kPieceBits);
      x.ndim = ndim_of_key(first >> kPieceBits);
      const Piece* const lies_in = piece ? &log.pieces_[piece - 1] : nullptr;
      int64_t offset = 0;
      if (lies_in) {
        x.chunk = lies_in->chunk;
        offset = static_cast<int64_t>(word());
        ++at;
      }
      for (int d = 0; d < x.ndim; ++d) x.shape[d] = static_cast<int64_t>(word());
      for (int d = 0; d < x.ndim; ++d) x.strides[d] = static_cast<int64_t>(word());
      x.size = std::accumulate(x.shape, x.shape + x.ndim, int64_t{1}, std::multiplies<>());
      if (!lies_in) return sizes_of(x, device);
      x.data = lies_in->data + offset;
      return geometry_of(x, lies_in->serial, lies_in->device, x.chunk ? hold(x) : nb::none());
    }

    // Inputs are known by their number in the log, from 1.
    nb::object scalar() {
      const uint64_t first = word();
      Scalar value;
      if (first & 1) {
        value = log.numbers_[number];
        value.origin = static_cast<uint32_t>(++number);
      } else {
        value.kind = static_cast<Scalar::Kind>(first >> 1);
        value.unsigned_integer = word();
        if (value.kind == Scalar::Kind::boolean) value.boolean = value.unsigned_integer != 0;
      }
      return number_of(value);
    }

    nb::object operation(const Operation& each) {
      at = each.at + 1;
      number = each.numbers;
      switch (each.kind) {
        case Kind::launch:
          return launch(each);
        case Kind::fill: {
          nb::object value = scalar();
          return nb::make_tuple("filled", array(), value);
        }
        case Kind::copy: {
          nb::object from = array();
          return nb::make_tuple("copied", array(), from);
        }
        case Kind::range: {
          nb::object start = scalar(), step = scalar();
          return nb::make_tuple("counted", array(), start, step);
        }
        case Kind::draw: {
          static constexpr const char* names[] = {"uniform", "normal", "integers", "bits"};
          const char* kind = names[word()];
          nb::object a = scalar(), b = scalar();
          return nb::make_tuple("drawn", array(), kind, a, b, each.site.text());
        }
        case Kind::permute:
          break;
      }
      nb::object from = array();
      return nb::make_tuple("permuted", array(), from, each.site.text());
    }

    nb::object launch(const Operation& each) {
      ++at;
      const Program& program = *each.plan->program;
      nb::list arrays, numbers, results;
      for (size_t k = 0; k < each.arrays; ++k) arrays.append(array(program.device));
      for (size_t k = 0; k < each.all_numbers; ++k) numbers.append(scalar());
      for (size_t j = 0; j < program.outputs.size(); ++j)
        results.append(is_alias(program, j) ? nb::none() : array());
      nb::handle recipe(each.plan->recipe ? each.plan->recipe : Py_None);
      return nb::make_tuple("launched", recipe, arrays, numbers, results, each.site.text());
    }
  };

  PyObject* target_;  // who owns the log
  bool watched_;      // the target is told where somebody looks
  uint64_t mark_ = Chunk::last_serial();
  PlanKey key_;
  std::vector<Operation> operations_;
  std::vector<Scalar> numbers_;  // inputs
  std::vector<Piece> pieces_;
  std::unordered_map<uint64_t, size_t> numbers_of_;  // by serial
  uint64_t segments_ = 0, unseen_bytes_ = 0;  // done so far, and results in them that were not computed
  size_t bytes_ = 0;                          // of pieces that were born
  bool shared_ = false;                       // the operation at hand uses memory of others
};

}  // namespace

Scribe& scribe_of(nb::handle log) { return nb::cast<Log&>(log); }

void bind_log(nb::module_& m) {
  Class<Log>(m, "Log", "What lazy evaluation has put off; for an object that makes programs of it.")
      .def(nb::init<nb::handle, bool>(), nb::arg("target"), nb::arg("watched") = false)
      .def("flush", [](Log& log) { log.flush(); })
      .def_prop_ro("segments", &Log::done, "How many programs were run.")
      .def_prop_ro("unseen_bytes", &Log::unseen_bytes,
                   "Memory of results that nobody could see any more, so that they were not written.");
  def(m, "log_counters", [] {
    nb::dict counters;
    counters["put_off"] = put_off;
    counters["segments"] = segments_run;
    counters["segment_misses"] = segment_misses;
    return counters;
  });
}

}  // namespace weft
