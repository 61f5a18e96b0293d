#include "engine/tickets.h"

#include <mutex>
#include <new>

#include "engine/device_kind.h"
#include "engine/engine.h"
#include "engine/late_checks.h"

namespace weft {
namespace {

template <class F>  // f(ticket)
void each_before(const Access& access, F&& f) {
  const StreamUses* const uses = access.var->uses.load(std::memory_order_acquire);
  if (!uses || access.is_duplicate) return;
  if (const Ticket write = uses->write()) f(write);
  if (access.mode != Mode::read) uses->each_read(f);
}

template <class F>  // f(access)
void each_access(const Op& op, F&& f) {
  for (const Access *a = op.accesses(), *end = a + op.access_count; a != end; ++a) f(*a);
}

// A variable keeps the address that it had in an earlier context.
void require_memory(const Var& var) {
  const auto [number, context] = var.context_memory;
  if (number == 0) return;
  const Device device{static_cast<DeviceKind>(number / kDevicesOfKind), number % kDevicesOfKind};
  if (backend_of(device.kind)->context_number(device.index) != context)
    throw DeviceError("the memory of an array on " + to_string(device) +
                      " was lost when the device was reset");
}

// Readers may make it at the same time.
StreamUses& uses_of(Var& var) {
  StreamUses* uses = var.uses.load(std::memory_order_acquire);
  if (uses) return *uses;
  auto* const mine = new StreamUses;
  if (var.uses.compare_exchange_strong(uses, mine, std::memory_order_acq_rel)) return *mine;
  delete mine;
  return *uses;
}

}  // namespace

StreamUses::StreamUses() = default;
StreamUses::~StreamUses() = default;

Ref<Doubt> StreamUses::doubt() const noexcept {
  if (!is_in_doubt_.load(std::memory_order_acquire)) [[likely]]
    return {};
  const std::lock_guard guard(doubt_lock_);
  return doubt_;
}

void StreamUses::set_doubt(Ref<Doubt> doubt) noexcept {
  if (!doubt && !is_in_doubt_.load(std::memory_order_acquire)) return;
  const std::lock_guard guard(doubt_lock_);
  is_in_doubt_.store(static_cast<bool>(doubt), std::memory_order_release);
  std::swap(doubt_, doubt);  // the old one goes after the lock
}

void StreamUses::set_write(Ticket ticket) noexcept {
  for (auto& read : reads_) read.store(0, std::memory_order_relaxed);
  write_.store(ticket.word, std::memory_order_release);
}

bool StreamUses::add_read(Ticket ticket) noexcept {
  for (auto& read : reads_) {
    uint64_t before = read.load(std::memory_order_relaxed);
    while (before == 0 || Ticket{before}.stream() == ticket.stream()) {
      if (before >= ticket.word) return true;
      if (read.compare_exchange_weak(before, ticket.word, std::memory_order_acq_rel)) return true;
    }
  }
  return false;
}

bool StreamUses::has_run() const noexcept {
  bool all = !write() || weft::has_run(write());
  each_read([&](Ticket read) { all = all && weft::has_run(read); });
  return all;
}

bool StreamUses::wait(const GivesUp& gives_up) const {
  bool all = !write() || wait_for(write(), gives_up);
  each_read([&](Ticket read) { all = all && wait_for(read, gives_up); });
  return all;
}

bool has_run(Ticket ticket) noexcept { return backend_of_stream(ticket.stream()).has_run(ticket); }

bool wait_for(Ticket ticket, const GivesUp& gives_up) {
  const Blocking blocking;
  return backend_of_stream(ticket.stream()).wait(ticket, gives_up);
}

void order_after(int stream, Ticket ticket) {
  if (stream == ticket.stream()) return;
  if (stream && &backend_of_stream(stream) == &backend_of_stream(ticket.stream()))
    backend_of_stream(stream).order(stream, ticket);
  else
    wait_for(ticket);
}

void order_streams(const Op& op) {
  const int stream = op.queue->stream_number;
  each_access(op, [&](const Access& a) {
    require_memory(*a.var);
    each_before(a, [&](Ticket before) { order_after(stream, before); });
  });
}

Ticket note_streams(const Op& op) {
  const int stream = op.queue->stream_number;
  if (!stream) return {};
  const Ticket ticket = backend_of_stream(stream).record(stream);
  try {
    each_access(op, [&](const Access& a) {
      if (a.is_duplicate) return;
      StreamUses& uses = uses_of(*a.var);
      if (a.mode != Mode::read)
        uses.set_write(ticket);
      else if (!uses.add_read(ticket))
        wait_for(ticket);
    });
  } catch (const std::bad_alloc&) {  // nobody has to wait for what has run
    wait_for(ticket);
  }
  return ticket;
}

bool would_wait_for_streams(const Op& op) noexcept {
  bool waits = false;
  if (op.queue->stream_number == 0)
    each_access(op, [&](const Access& a) {
      each_before(a, [&](Ticket before) { waits = waits || !has_run(before); });
    });
  return waits;
}

bool wait_for_streams(const Var& var, bool writes_only, const GivesUp& gives_up) {
  require_memory(var);
  const StreamUses* const uses = var.uses.load(std::memory_order_acquire);
  if (!uses) return true;
  if (!writes_only) return uses->wait(gives_up);
  return !uses->write() || wait_for(uses->write(), gives_up);
}

void order_other_stream(Device device, void* stream, const Var& var, bool writes_only) {
  require_memory(var);
  const StreamUses* const uses = var.uses.load(std::memory_order_acquire);
  if (!uses) return;
  DeviceBackend& backend = *backend_of(device.kind);
  if (const Ticket write = uses->write()) backend.order_other(device.index, stream, write);
  if (!writes_only) uses->each_read([&](Ticket read) { backend.order_other(device.index, stream, read); });
}

void note_foreign_write(Var& var, int stream) {
  uses_of(var).set_write(backend_of_stream(stream).record(stream));
}

bool wait_for_all_streams(const GivesUp& gives_up) {
  for (int kind = 0; kind < kDeviceKinds; ++kind)
    if (DeviceBackend* const backend = backend_of(static_cast<DeviceKind>(kind)))
      for (const Ticket ticket : backend->newest())
        if (!wait_for(ticket, gives_up)) return false;
  return true;
}

}  // namespace weft
