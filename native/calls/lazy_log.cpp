#include "calls/lazy_log.h"

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
  std::vector<Ref<Plan>> plans;  // the plans that the words name by their addresses
};

class Log::Segments {
 public:
  Segment* find(const PlanKey& key) {
    const auto it = table_.find(key);
    return it == table_.end() ? nullptr : &it->second;
  }
  void add(PlanKey key, Segment segment) {
    const auto [it, is_new] = table_.try_emplace(std::move(key), std::move(segment));
    if (!is_new) return;  // another thread made it meanwhile
    order_.push_back(&it->first);
    if (order_.size() <= kSegments) return;
    const PlanKey& oldest = *order_.front();
    order_.pop_front();
    const auto evicted =
        table_.extract(table_.find(oldest));  // ends last: that may run Python, which comes back
  }

  // Whether some segment begins like this. If so, its program exists, and lines of code are not needed;
  // the answer may still be true for one that was evicted, whose errors then name no line.
  bool has_beginning(uint64_t hash) const { return beginnings_.contains(hash); }
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
    LoggedOperation logged{each.kind, {}, each.plan.get(), &each.site, {}, {}, {}};
    if (each.kind == Kind::launch) {
      ++at;
      const Program& program = *each.plan->program;
      for (size_t k = 0; k < each.arrays; ++k) logged.arrays.push_back(array(program.device));
      for (size_t k = 0; k < each.all_numbers; ++k) logged.numbers.push_back(scalar());
      for (size_t j = 0; j < program.outputs.size(); ++j)
        logged.results.push_back(is_alias(program, j) ? std::nullopt : std::optional(array()));
      return logged;
    }
    if (each.kind == Kind::draw) logged.draw = static_cast<Draw>(word());
    if (each.kind == Kind::copy || each.kind == Kind::permute) logged.arrays.push_back(array());
    const bool has_two = each.kind == Kind::range || each.kind == Kind::draw;
    for (int k = has_two ? 2 : each.kind == Kind::fill; k > 0; --k) logged.numbers.push_back(scalar());
    logged.results.emplace_back(array());
    return logged;
  }
};

// Whether one more operation was added; `write` adds its words, or says that it cannot.
template <class F>
bool Log::try_to_add(Kind kind, F&& write) {
  if (operations_.size() == kOperations || (bytes_ > kBytes && bytes_alive() > kBytes)) flush();
  for (int attempt = 0; attempt < 2; ++attempt) {
    const size_t first_word = key_.size(), count = pieces_.size();
    operations_.push_back({kind, first_word, numbers_.size()});
    key_.push_back(static_cast<uint64_t>(kind));
    shared_ = false;
    if (write()) {
      uint64_t hash = first_word ? operations_[operations_.size() - 2].hash : 0;
      for (size_t k = first_word; k < key_.size(); ++k)
        hash = (std::rotl(hash, 23) ^ key_[k]) * 0x9e3779b97f4a7c15;
      operations_.back().hash = hash;
      if (!all_segments().has_beginning(hash)) operations_.back().site = Site::here();
      ++put_off;
      if (shared_) flush();  // other libraries may write there at any time: the operation has to run now
      return true;
    }
    // Not in this segment. Again in a new one; if that does not help, the operation runs at once.
    numbers_.resize(operations_.back().numbers);
    key_.resize(first_word);
    operations_.pop_back();
    forget_pieces_from(count);
    flush();
  }
  return false;
}

bool Log::on_launch(const Plan& plan, std::span<const Tracked* const> inputs, std::span<const Scalar> numbers,
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

bool Log::on_fill(const Tensor& to, Scalar value) {
  return changed(to, try_to_add(Kind::fill, [&] {
                   add(value, value.origin != 0);
                   return add(to, true);
                 }));
}

bool Log::on_copy(const Tensor& to, const Tensor& from) {
  return changed(to, try_to_add(Kind::copy, [&] { return add(from, false) && add(to, true); }));
}

bool Log::on_range(const Tensor& to, Scalar start, Scalar step) {
  return changed(to, try_to_add(Kind::range, [&] {
                   add(start, false);
                   add(step, false);
                   return add(to, true);
                 }));
}

bool Log::on_draw(const Tensor& to, Draw kind, Scalar a, Scalar b) {
  return changed(to, try_to_add(Kind::draw, [&] {
                   key_.push_back(static_cast<uint64_t>(kind));
                   add(a, a.kind == Scalar::Kind::real);
                   add(b, b.kind == Scalar::Kind::real);
                   return add(to, true);
                 }));
}

bool Log::on_permute(const Tensor& to, const Tensor& from) {
  return changed(to, try_to_add(Kind::permute, [&] { return add(from, false) && add(to, true); }));
}

void Log::on_read(const Tensor& x) {
  if (!number_of_piece(*x.chunk)) return;
  if (reports_reads_) {
    const Unobserved quiet;
    host::note_break(target_);
  }
  flush();
}

void Log::flush() {
  if (operations_.empty()) return clear();
  const Unobserved quiet;
  // What nothing else refers to need not be computed.
  uint64_t unseen = unseen_bytes_;
  for (Piece& piece : pieces_) {
    if (!piece.chunk) piece.chunk = Chunk::find(piece.serial);
    const bool is_live = piece.is_new && piece.chunk && piece.chunk->references() > 1;
    if (piece.is_new && !is_live) unseen += piece.bytes;
    key_.push_back(is_live);
  }
  const uint64_t count = segments_ + 1;
  Log now{target_, reports_reads_};
  std::swap(now, *this);
  unseen_bytes_ = unseen;
  segments_ = count;
  mark_ = Chunk::last_serial();
  now.run();
}

bool Log::add(const Tensor& x, bool is_written) {
  const size_t piece = x.chunk ? locate(x, is_written) : 0;
  if (x.chunk && !piece) return false;
  key_.push_back(piece | type_key(x, x.chunk ? x.device() : Device{}) << kPieceBits);
  if (piece) {
    key_.push_back(static_cast<uint64_t>(x.data - x.chunk->data));
    key_.push_back(pieces_[piece - 1].is_new);
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
size_t Log::locate(const Tensor& x, bool is_written) {
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
  if (is_written && piece.is_new && !x.dense()) return 0;
  piece.windows.push_back({first, end, x.dtype});
  return number;
}

size_t Log::piece_of(const Tensor& x, bool is_written) {
  if (const size_t number = number_of_piece(*x.chunk)) return number;
  Chunk& chunk = *x.chunk;
  const bool is_new = chunk.serial > mark_ && chunk.serial >> 40 == mark_ >> 40;
  // What is read first has a content that no operation of the segment gives: the program reads the memory.
  const bool is_released = is_new && is_written && chunk.bytes >= kLargeBytes;
  if (is_released) chunk.watch();
  pieces_.push_back({{}, chunk.serial, chunk.data, chunk.bytes, chunk.device, is_new, {}});
  if (!is_released) pieces_.back().chunk = x.chunk;
  numbers_of_.emplace(chunk.serial, pieces_.size());
  if (is_new) bytes_ += chunk.bytes;
  return pieces_.size();
}

// Of memory of results that wait; those that are not held any more are gone.
size_t Log::bytes_alive() {
  bytes_ = 0;
  for (const Piece& piece : pieces_)
    if (piece.is_new && (piece.chunk || Chunk::is_alive(piece.serial))) bytes_ += piece.bytes;
  return bytes_;
}

size_t Log::number_of_piece(const Chunk& chunk) const {
  const auto it = numbers_of_.find(chunk.serial);
  return it == numbers_of_.end() ? 0 : it->second;
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
  Segments& table = all_segments();
  Segment* segment = table.find(key_);
  if (!segment) {
    ++segment_misses;
    table.add(key_, request_program());
    for (const Operation& each : operations_) table.add_beginning(each.hash);
    segment = table.find(key_);
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
  std::vector<Tracked> results(plan->program->outputs.size());
  const KeptCounts counts(inputs, {});
  call_plan(plan, inputs, numbers, {}, results);
}

Log::Segment Log::request_program() const {
  LoggedSegment request{target_, {}, {}, mark_};
  Reader reader{*this};
  for (const Operation& each : operations_) request.operations.push_back(reader.operation(each));
  const size_t first = key_.size() - pieces_.size();
  for (size_t k = 0; k < pieces_.size(); ++k)
    if (key_[first + k]) request.live_serials.push_back(pieces_[k].serial);
  LoggedProgram reply = host::program_of(request);
  Segment segment{std::move(reply.plan), {}, {}, {}};
  for (const Operation& each : operations_)
    if (each.plan) segment.plans.push_back(each.plan);
  for (const Tensor& x : reply.inputs)
    segment.inputs.push_back(
        {number_of_piece(*x.chunk) - 1, x.data - x.chunk->data, x.dtype, Shape(x.dims()), Shape(x.steps())});
  for (const size_t origin : reply.numbers) segment.numbers.push_back(origin - 1);
  return segment;
}

}  // namespace weft
