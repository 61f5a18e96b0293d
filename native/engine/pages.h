// pages.h: addresses of a device's memory, and the memory behind them: what a pool divides into blocks.
//
// The addresses are one range, reserved for as long as the object lives. Memory is put behind them in pieces
// and taken away again; offsets are from base(), and multiples of granularity(). Not safe for threads: its
// pool has a lock.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

namespace weft {

class Pages {
 public:
  virtual ~Pages() = default;
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;

  // The range; no bytes: there are no addresses, and each allocation fails.
  char* base() const noexcept { return base_; }
  uint64_t bytes() const noexcept { return bytes_; }
  // Whether the host may read and write what is mapped.
  virtual bool on_host() const noexcept = 0;
  // The least that is given back; the memory that there is: the pool's limit unless one is set.
  virtual uint64_t granularity() const noexcept = 0;
  virtual uint64_t total_bytes() const noexcept = 0;

  // Puts memory behind a part that has none; false: there is none.
  virtual bool commit(uint64_t from, uint64_t bytes) noexcept = 0;
  // Takes all memory away behind a part at the end of what is committed; parts of it may have been given
  // back.
  virtual bool withdraw(uint64_t from, uint64_t bytes) noexcept = 0;
  // Takes memory away behind a committed part, of which some may have been given back before; the part stays
  // committed. False: nothing was.
  virtual bool give_back(uint64_t from, uint64_t bytes) noexcept = 0;
  // Puts memory behind what was given back in this part; false: there is none, and the rest stays as it is.
  virtual bool bring_back(uint64_t from, uint64_t bytes) noexcept = 0;
  // All memory and the addresses have gone, with the device's context; no bytes from now on.
  virtual void lose() noexcept { bytes_ = 0; }

 protected:
  Pages() = default;
  char* base_ = nullptr;
  uint64_t bytes_ = 0;
};

// The processor's memory: pages of the system, which come when they are touched.
std::unique_ptr<Pages> host_pages();

}  // namespace weft
