// Memory of the stand-in's devices, and pinned memory of the host.
//
// A device address lies in the host window, which stays PROT_NONE for ever. The memory itself is mapped into
// a second window of the same size, the alias, which only the stand-in's threads know: alias = address + a
// constant. Where nothing is mapped, the alias is PROT_NONE, too. Physical memory is a file in memory for
// each device.
//
// cuMemAlloc places an allocation at the end of its pages, with a page behind it that is never mapped, and
// never gives an address twice, so an access behind it or after cuMemFree faults. New memory holds 0xff
// bytes: NaN, and no index. Thread-safe. An access while another thread unmaps faults or sees the memory:
// what a GPU does is undefined, too.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <shared_mutex>
#include <string>
#include <vector>

#include "standin/driver_types.h"

namespace standin {

using Address = std::uint64_t;
constexpr std::size_t kPage = 4096;
constexpr std::size_t kGranularity = std::size_t{2} << 20;  // of cuMemCreate and cuMemMap
constexpr std::size_t kAlignment = 16;                      // of cuMemAlloc; the driver's own is 256

// The physical memory of one device.
class Store {
 public:
  Store(int device, std::size_t bytes);
  // The offset of free bytes in the file; -1 if there are none in one piece.
  std::int64_t take(std::size_t bytes);
  void give_back(std::size_t offset, std::size_t bytes);
  int file() const { return file_; }
  std::size_t total_bytes() const { return total_; }
  std::size_t free_bytes();

 private:
  std::mutex mutex_;
  int file_;
  std::size_t total_;
  std::map<std::size_t, std::size_t> free_;  // bytes by offset; no two are neighbours
};

// Physical memory in one piece; goes back to its store with the last handle or mapping.
struct Piece {
  Store* store;
  int device;
  std::size_t offset, bytes;
  ~Piece() { store->give_back(offset, bytes); }
};

class Memory {
 public:
  // devices: their number; bytes: of each.
  Memory(int devices, std::size_t bytes);

  CUresult reserve(std::size_t bytes, std::size_t alignment, Address* address);
  CUresult free_reserved(Address address, std::size_t bytes);
  CUresult create(int device, std::size_t bytes, CUmemGenericAllocationHandle* handle);
  CUresult release(CUmemGenericAllocationHandle handle);
  CUresult map(Address address, std::size_t bytes, std::size_t offset, CUmemGenericAllocationHandle handle);
  CUresult unmap(Address address, std::size_t bytes);
  CUresult set_access(Address address, std::size_t bytes, int device, int flags);
  CUresult allocate(int device, std::size_t bytes, Address* address);
  CUresult free(Address address);
  void enable_peer(int device, int peer);

  CUresult allocate_host(std::size_t bytes, void** pointer);
  CUresult free_host(void* pointer);
  CUresult register_host(void* pointer, std::size_t bytes);
  CUresult unregister_host(void* pointer);

  void info(int device, std::size_t* free, std::size_t* total);
  // Frees what cuMemAlloc gave on the device: its context is reset.
  void reset(int device);

  // Where the stand-in finds `bytes` at an address that `device` may use: of a device, or pinned. Null
  // otherwise.
  char* find(Address address, std::size_t bytes, int device);
  // The same for a pointer that a kernel may never read; where the memory is missing, an address that faults.
  char* alias_or_fault(Address address, int device);
  // The device of a live address; -1 for pinned memory, -2 for any other.
  int device_of(Address address);
  bool in_window(Address address) const { return address - window_ < kWindow; }
  // What is wrong with an address where an access faulted, in words.
  std::string describe(Address address);

 private:
  struct Mapping {
    std::size_t bytes;
    std::uint64_t devices;  // that may use it, as bits
    bool allocated;         // by cuMemAlloc
    std::shared_ptr<Piece> piece;
  };
  using Mappings = std::map<Address, Mapping>;

  static constexpr std::size_t kWindow = std::size_t{320} << 30;
  static constexpr std::size_t kReserved = std::size_t{256} << 30;  // of it for cuMemAddressReserve

  std::shared_ptr<Piece> new_piece(int device, std::size_t bytes);
  bool place(Address address, std::size_t bytes, const Piece& piece, std::size_t offset, int protection);
  void remove(Address address, std::size_t bytes);
  Mappings::iterator containing(Address address);
  bool covered(Address address, std::size_t bytes, int device);
  void forget(Mappings::iterator it);

  std::shared_mutex mutex_;
  Address window_;
  Address alias_;
  std::vector<std::unique_ptr<Store>> stores_;
  std::vector<std::uint64_t> peers_;               // by device: others that may use its cuMemAlloc memory
  std::map<Address, std::size_t> free_addresses_;  // for reservations
  std::map<Address, std::size_t> reserved_;
  Address next_;  // for cuMemAlloc
  Mappings mappings_;
  std::map<Address, std::size_t> freed_;  // of cuMemAlloc and cuMemUnmap, for describe()
  std::map<CUmemGenericAllocationHandle, std::shared_ptr<Piece>> handles_;
  CUmemGenericAllocationHandle next_handle_ = 1;
  struct Pinned {
    std::size_t bytes;
    void* pages;  // null: registered
    std::size_t pages_bytes;
  };
  std::map<Address, Pinned> pinned_;
};

}  // namespace standin
