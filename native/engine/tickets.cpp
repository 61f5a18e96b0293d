#include "engine/tickets.h"

#include <new>

#include "engine/device_kind.h"
#include "engine/engine.h"

namespace weft {
namespace {

DeviceBackend& backend_of_stream(int stream) noexcept {
  constexpr int kStreamsOfKind = kDevicesOfKind * Ticket::kStreamsOfDevice;
  return *backend_of(static_cast<DeviceKind>(stream / kStreamsOfKind));
}

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

void StreamUses::wait() const {
  if (write()) wait_for(write());
  each_read([](Ticket read) { wait_for(read); });
}

bool has_run(Ticket ticket) noexcept { return backend_of_stream(ticket.stream()).has_run(ticket); }

void wait_for(Ticket ticket) {
  const Blocking blocking;
  backend_of_stream(ticket.stream()).wait(ticket);
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
  each_access(op,
              [&](const Access& a) { each_before(a, [&](Ticket before) { order_after(stream, before); }); });
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

void wait_for_streams(const Var& var, bool writes_only) {
  const StreamUses* const uses = var.uses.load(std::memory_order_acquire);
  if (!uses) return;
  if (!writes_only) return uses->wait();
  if (const Ticket write = uses->write()) wait_for(write);
}

}  // namespace weft
