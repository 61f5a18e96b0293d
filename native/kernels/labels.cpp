// labels.cpp: numbers of classes, checked before they are used.
#include <atomic>

#include "engine/team.h"
#include "kernels/indices.h"
#include "kernels/kernels.h"

namespace weft {
namespace {

constexpr int64_t kPiece = 16 << 10;

class CheckLabels final : public Kernel {
 public:
  explicit CheckLabels(std::string function) : function_(std::move(function)) {}

  void run(const Call& call) const override {
    const View &labels = call.operands[0], &y = call.operands[1];
    if (count_of(y) == 0) return;
    const auto classes = load_as<int64_t>(call.parameters), ignored = load_as<int64_t>(call.parameters + 1);
    const Lines<2> lines({&y, &labels}, std::max(y.ndim - 1, 0));
    const int64_t pieces = (lines.length[0] + kPiece - 1) / kPiece;
    std::atomic<const char*> bad{nullptr};
    parallel_for(lines.count * pieces, lines_per_piece(std::min(lines.length[0], kPiece), kPiece),
                 [&](int64_t begin, int64_t end) {
                   for (int64_t unit = begin; unit < end; ++unit) {
                     const int64_t first = unit % pieces * kPiece;
                     const int64_t count = std::min(kPiece, lines.length[0] - first);
                     const auto [to, from] = lines.at(unit / pieces);
                     const char* bad_label = copy(to + first * lines.step[0] * 8, lines.step[0],
                                                  from + first * lines.step[1] * size_of_label(labels),
                                                  lines.step[1], labels, count, classes, ignored);
                     if (bad_label) bad.store(bad_label, std::memory_order_relaxed);
                   }
                 });
    if (const char* label = bad.load(std::memory_order_relaxed))
      throw IndexError(function_ + ": target " + text(label, labels.dtype) + " is none of the " +
                       std::to_string(classes) + " classes, nor ignore_index, " + std::to_string(ignored));
  }

 private:
  static int64_t size_of_label(const View& labels) { return static_cast<int64_t>(size_of(labels.dtype)); }

  // Copies labels as int64; returns a pointer to one that is not a class.
  static const char* copy(char* to, int64_t to_step, const char* from, int64_t step, const View& labels,
                          int64_t count, int64_t classes, int64_t ignored) {
    const RowFunctions load = row_functions(DType::int64, labels.dtype);
    const char* bad = nullptr;
    int64_t items[kIndexChunk];
    for (int64_t done = 0; done < count; done += kIndexChunk) {
      const int64_t now = std::min(kIndexChunk, count - done);
      const char* start = from + done * step * size_of_label(labels);
      (step == 1 ? load.contiguous : load.strided)(reinterpret_cast<char*>(items), 1, start, step, now);
      for (int64_t i = 0; i < now; ++i) {
        const bool is_class = static_cast<uint64_t>(items[i]) < static_cast<uint64_t>(classes);
        if (!is_class && items[i] != ignored) bad = start + i * step * size_of_label(labels);
        store_as(to + (done + i) * to_step * 8, items[i]);
      }
    }
    return bad;
  }

  static std::string text(const char* label, DType dtype) {
    if (dtype == DType::uint64) return std::to_string(load_as<uint64_t>(label));
    int64_t value = 0;
    row_functions(DType::int64, dtype).contiguous(reinterpret_cast<char*>(&value), 1, label, 1, 1);
    return std::to_string(value);
  }

  const std::string function_;
};

}  // namespace

Ref<Kernel> make_check_labels(std::string function) {
  return Ref<Kernel>(new CheckLabels(std::move(function)));
}

}  // namespace weft
