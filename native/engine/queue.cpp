#include "engine/queue.h"

namespace weft {

const char* queue_name(QueueKind kind) noexcept {
  switch (kind) {
    case QueueKind::compute:
      return "compute";
    case QueueKind::wide:
      return "wide";
    case QueueKind::copy:
      return "copy";
    case QueueKind::io:
      return "io";
    case QueueKind::priority:
      return "priority";
  }
  return "?";
}

void ReadyList::append(Fifo& fifo, Op* op) noexcept {
  op->next = nullptr;
  if (fifo.tail)
    fifo.tail->next = op;
  else
    fifo.head = op;
  fifo.tail = op;
}

Op* ReadyList::shift(Fifo& fifo) noexcept {
  Op* op = fifo.head;
  fifo.head = op->next;
  if (!fifo.head) fifo.tail = nullptr;
  op->next = nullptr;
  return op;
}

void ReadyList::push(Op* op) {
  append(op->priority == 0 ? ordinary_ : others_[op->priority], op);
  ++size_;
}

Op* ReadyList::pop() noexcept {
  --size_;
  const auto best = others_.begin();
  const bool other = best != others_.end() && (best->first > 0 || !ordinary_.head);
  if (!other) return shift(ordinary_);
  Op* op = shift(best->second);
  if (!best->second.head) others_.erase(best);
  return op;
}

int ReadyList::top_priority() const noexcept {
  const auto best = others_.begin();
  return best != others_.end() && (best->first > 0 || !ordinary_.head) ? best->first : 0;
}

bool DeviceState::narrow_turn() {
  const int narrow = queue(QueueKind::compute).ready.top_priority();
  const int wide = queue(QueueKind::wide).ready.top_priority();
  if (narrow != wide) return narrow > wide;
  return Clock::now() < narrow_until;
}

}  // namespace weft
