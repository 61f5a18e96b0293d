#include "calls/log.h"

#include <bit>
#include <deque>
#include <numeric>
#include <unordered_set>

namespace weft {
namespace {

constexpr size_t kOperations = 10'000;      // put off before they are done unasked
constexpr size_t kBytes = size_t{4} << 30;  // of memory of results that wait
constexpr size_t kLargeBytes = 64 << 10;    // from here on memory is not kept for the log alone
constexpr size_t kBeginnings = 1 << 16;     // of segments, likewise
constexpr size_t kSegments = 512;           // programs that are known; the oldest are forgotten
constexpr int kPieceBits = 27;              // of the number of a piece of memory in a key, beside its type
static_assert(kPieceBits + kTypeBits <= 64);

// What gradients have saved is overwritten as seen from the language, whenever it will happen.
bool changed(const Tensor& to, bool is_added) {
  if (is_added) to.chunk->writes.fetch_add(1, std::memory_order_relaxed);
  return is_added;
}

}  // namespace

// A program that is known, for segments of the same words.
struct Log::Segment {
  // The window of an input of the program.
  struct Input {
    size_t piece;
    int64_t offset;  // bytes
    DType dtype;
    Shape shape, strides;
  };
  Ref<Plan> plan;  // null: nothing is left to be done
  std::vector<Input> inputs;
  std::vector<size_t> numbers;
  std::vector<Ref<Plan>> words;  // the plans that the words name by their addresses
};

class Log::Segments {
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

  // Whether some segment begins like this. If so, its program exists, and lines of code are not needed;
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

Log::Segments& Log::all_segments() {
  static auto* const all = new Segments;  // plans hold objects of the language: never ended
  return *all;
}

// Words as operations again.
struct Log::Reader {
  const Log& log;
  size_t at = 0, number = 0;

  uint64_t word() { return log.key_[at++]; }

  LoggedArray array(Device device = {}) {
    const uint64_t first = word();
    const size_t number_of_piece = first & ((uint64_t{1} << kPieceBits) - 1);
    LoggedArray array{{}, 0, device};
    Tensor& x = array.x;
    x.dtype = dtype_of_key(first >> kPieceBits);
    x.ndim = ndim_of_key(first >> kPieceBits);
    if (number_of_piece) {
      const Piece& piece = log.pieces_[number_of_piece - 1];
      x.chunk = piece.chunk;
      x.data = piece.data + static_cast<int64_t>(word());
      array.serial = piece.serial;
      array.device = piece.device;
      ++at;
    }
    for (int d = 0; d < x.ndim; ++d) x.shape[d] = static_cast<int64_t>(word());
    for (int d = 0; d < x.ndim; ++d) x.strides[d] = static_cast<int64_t>(word());
    x.size = std::accumulate(x.shape, x.shape + x.ndim, int64_t{1}, std::multiplies<>());
    return array;
  }

  Scalar scalar() {
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
    return value;
  }

  // In the order in which the methods of Log write the words.
  LoggedOperation operation(const Operation& each) {
    at = each.at + 1;
    number = each.numbers;
    LoggedOperation told{each.kind, {}, each.plan.get(), &each.site, {}, {}, {}};
    if (each.kind == Kind::launch) {
      ++at;
      const Program& program = *each.plan->program;
      for (size_t k = 0; k < each.arrays; ++k) told.arrays.push_back(array(program.device));
      for (size_t k = 0; k < each.all_numbers; ++k) told.numbers.push_back(scalar());
      for (size_t j = 0; j < program.outputs.size(); ++j)
        told.results.push_back(is_alias(program, j) ? std::nullopt : std::optional(array()));
      return told;
    }
    if (each.kind == Kind::draw) told.draw = static_cast<Draw>(word());
    if (each.kind == Kind::copy || each.kind == Kind::permute) told.arrays.push_back(array());
    const bool has_two = each.kind == Kind::range || each.kind == Kind::draw;
    for (int k = has_two ? 2 : each.kind == Kind::fill; k > 0; --k) told.numbers.push_back(scalar());
    told.results.emplace_back(array());
    return told;
  }
};

// Whether one more operation was added; `write` adds its words, or says that it cannot.
template <class F>
bool Log::try_to_add(Kind kind, F&& write) {
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
      if (!all_segments().knows(hash)) operations_.back().site = Site::here();
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

bool Log::launched(const Plan& plan, std::span<const Tracked* const> inputs, std::span<const Scalar> numbers,
                   std::span<const Tracked> results) {
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

bool Log::filled(const Tensor& to, Scalar value) {
  return changed(to, try_to_add(Kind::fill, [&] {
                   add(value, value.origin != 0);
                   return add(to, true);
                 }));
}

bool Log::copied(const Tensor& to, const Tensor& from) {
  return changed(to, try_to_add(Kind::copy, [&] { return add(from, false) && add(to, true); }));
}

bool Log::counted(const Tensor& to, Scalar start, Scalar step) {
  return changed(to, try_to_add(Kind::range, [&] {
                   add(start, false);
                   add(step, false);
                   return add(to, true);
                 }));
}

bool Log::drawn(const Tensor& to, Draw kind, Scalar a, Scalar b) {
  return changed(to, try_to_add(Kind::draw, [&] {
                   key_.push_back(static_cast<uint64_t>(kind));
                   add(a, a.kind == Scalar::Kind::real);
                   add(b, b.kind == Scalar::Kind::real);
                   return add(to, true);
                 }));
}

bool Log::permuted(const Tensor& to, const Tensor& from) {
  return changed(to, try_to_add(Kind::permute, [&] { return add(from, false) && add(to, true); }));
}

void Log::read(const Tensor& x) {
  if (!number_of_piece(*x.chunk)) return;
  if (watched_) {
    const Unobserved quiet;
    host::note_break(target_);
  }
  flush();
}

void Log::flush() {
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
  Log now{target_, watched_};
  std::swap(now, *this);
  unseen_bytes_ = unseen;
  segments_ = done;
  mark_ = Chunk::last_serial();
  now.run();
}

bool Log::add(const Tensor& x, bool is_written) {
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

void Log::add(const Scalar& value, bool is_input) {
  key_.push_back(static_cast<uint64_t>(value.kind) << 1 | is_input);
  if (is_input) {
    numbers_.push_back(value);
    return;
  }
  key_.push_back(value.kind == Scalar::Kind::boolean ? value.boolean : value.unsigned_integer);
}

// The piece that contains the window, counted from 1; 0: it overlaps others in a way that no graph describes.
size_t Log::place(const Tensor& x, bool is_written) {
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
  if (is_written && piece.born && !x.dense()) return 0;
  piece.windows.push_back({first, end, x.dtype});
  return number;
}

size_t Log::piece_of(const Tensor& x, bool is_written) {
  if (const size_t known = number_of_piece(*x.chunk)) return known;
  Chunk& chunk = *x.chunk;
  const bool born = chunk.serial > mark_ && chunk.serial >> 40 == mark_ >> 40;
  // What is read first has a content that no operation of the segment gives: the program reads the memory.
  const bool is_released = born && is_written && chunk.bytes >= kLargeBytes;
  if (is_released) chunk.watch();
  pieces_.push_back(
      {is_released ? Ref<Chunk>() : x.chunk, chunk.serial, chunk.data, chunk.bytes, chunk.device, born, {}});
  numbers_of_.emplace(chunk.serial, pieces_.size());
  if (born) bytes_ += chunk.bytes;
  return pieces_.size();
}

// Of memory of results that wait; those that are not held any more are gone.
size_t Log::bytes_alive() {
  bytes_ = 0;
  for (const Piece& piece : pieces_)
    if (piece.born && (piece.chunk || Chunk::is_alive(piece.serial))) bytes_ += piece.bytes;
  return bytes_;
}

size_t Log::number_of_piece(const Chunk& chunk) const {
  const auto found = numbers_of_.find(chunk.serial);
  return found == numbers_of_.end() ? 0 : found->second;
}

void Log::forget_pieces_from(size_t count) {
  while (pieces_.size() > count) {
    numbers_of_.erase(pieces_.back().serial);
    pieces_.pop_back();
  }
}

void Log::clear() {
  key_.clear();
  operations_.clear();
  numbers_.clear();
  forget_pieces_from(0);
  bytes_ = 0;
  mark_ = Chunk::last_serial();
}

// Of a log whose operations are all there will be.
void Log::run() {
  ++segments_run;
  Segments& known = all_segments();
  Segment* segment = known.find(key_);
  if (!segment) {
    ++segment_misses;
    known.add(key_, ask());
    for (const Operation& each : operations_) known.add_beginning(each.hash);
    segment = known.find(key_);
  }
  if (!segment->plan) return;
  const Ref<Plan> plan = segment->plan;  // the table may change while it runs
  std::vector<Tracked> windows;
  windows.reserve(segment->inputs.size());
  std::vector<const Tracked*> inputs;
  for (const Segment::Input& input : segment->inputs) {
    const Ref<Chunk>& chunk = pieces_[input.piece].chunk;
    Tensor whole;
    whole.chunk = chunk;
    whole.dtype = input.dtype;
    inputs.push_back(
        &windows.emplace_back(whole.as_strided(chunk->data + input.offset, input.shape, input.strides)));
  }
  std::vector<Scalar> numbers;
  for (const size_t number : segment->numbers) numbers.push_back(numbers_[number]);
  std::vector<Tracked> made(plan->program->outputs.size());
  const KeptCounts counts(inputs, {});
  call_plan(plan, inputs, numbers, {}, made);
}

Log::Segment Log::ask() const {
  LoggedSegment question{target_, {}, {}, mark_};
  Reader words{*this};
  for (const Operation& each : operations_) question.operations.push_back(words.operation(each));
  const size_t first = key_.size() - pieces_.size();
  for (size_t k = 0; k < pieces_.size(); ++k)
    if (key_[first + k]) question.kept.push_back(pieces_[k].serial);
  LoggedProgram found = host::program_of(question);
  Segment segment{std::move(found.plan), {}, {}, {}};
  for (const Operation& each : operations_)
    if (each.plan) segment.words.push_back(each.plan);
  for (const Tensor& x : found.inputs)
    segment.inputs.push_back(
        {number_of_piece(*x.chunk) - 1, x.data - x.chunk->data, x.dtype, Shape(x.dims()), Shape(x.steps())});
  for (const size_t origin : found.numbers) segment.numbers.push_back(origin - 1);
  return segment;
}

}  // namespace weft
