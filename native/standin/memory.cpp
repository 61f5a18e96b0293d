#include "standin/memory.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace standin {
namespace {

std::size_t rounded(std::size_t bytes, std::size_t to) { return (bytes + to - 1) / to * to; }

[[noreturn]] void die(const char* what) {
  std::perror(what);
  std::abort();
}

// Address space without memory. By the system call: the sanitizers would prepare their shadow of all of it.
Address nothing_at(Address address, std::size_t bytes) {
  const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | (address ? MAP_FIXED : 0);
  const long result = syscall(SYS_mmap, address, bytes, PROT_NONE, flags, -1, 0);
  if (result == -1) die("stand-in: mmap of address space");
  return static_cast<Address>(result);
}

// Takes the first range of `free` that holds bytes at this alignment; 0 if there is none.
Address take_range(std::map<Address, std::size_t>& free, std::size_t bytes, std::size_t alignment) {
  for (auto it = free.begin(); it != free.end(); ++it) {
    const auto [begin, size] = *it;
    const Address at = rounded(begin, alignment);
    if (at + bytes > begin + size) continue;
    free.erase(it);
    if (at > begin) free[begin] = at - begin;
    if (at + bytes < begin + size) free[at + bytes] = begin + size - at - bytes;
    return at;
  }
  return 0;
}

template <class T>
void give_range(std::map<T, std::size_t>& free, T begin, std::size_t bytes) {
  auto it = free.emplace(begin, bytes).first;
  if (auto after = std::next(it); after != free.end() && begin + bytes == after->first) {
    it->second += after->second;
    free.erase(after);
  }
  if (it != free.begin()) {
    auto before = std::prev(it);
    if (before->first + before->second == begin) {
      before->second += it->second;
      free.erase(it);
    }
  }
}

}  // namespace

Store::Store(int device, std::size_t bytes) : total_(bytes) {
  const std::string name = "standin gpu:" + std::to_string(device);
  file_ = memfd_create(name.c_str(), MFD_CLOEXEC);
  if (file_ < 0 || ftruncate(file_, static_cast<off_t>(bytes))) die("stand-in: memory of a device");
  free_[0] = bytes;
}

std::int64_t Store::take(std::size_t bytes) {
  std::lock_guard guard(mutex_);
  for (auto it = free_.begin(); it != free_.end(); ++it) {
    const auto [begin, size] = *it;
    if (size < bytes) continue;
    free_.erase(it);
    if (size > bytes) free_[begin + bytes] = size - bytes;
    return static_cast<std::int64_t>(begin);
  }
  return -1;
}

void Store::give_back(std::size_t offset, std::size_t bytes) {
  std::lock_guard guard(mutex_);
  fallocate(file_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(offset),
            static_cast<off_t>(bytes));
  give_range(free_, offset, bytes);
}

std::size_t Store::free_bytes() {
  std::lock_guard guard(mutex_);
  std::size_t sum = 0;
  for (const auto& [offset, bytes] : free_) sum += bytes;
  return sum;
}

Memory::Memory(int devices, std::size_t bytes)
    : window_(nothing_at(0, kWindow + kGranularity)), alias_(nothing_at(0, kWindow + kGranularity)) {
  window_ = rounded(window_, kGranularity);
  alias_ = rounded(alias_, kGranularity);
  free_addresses_[window_] = kReserved;
  next_ = window_ + kReserved;
  for (int k = 0; k < devices; ++k) {
    stores_.push_back(std::make_unique<Store>(k, rounded(bytes, kGranularity)));
    peers_.push_back(std::uint64_t{1} << k);
  }
}

std::shared_ptr<Piece> Memory::new_piece(int device, std::size_t bytes) {
  Store& store = *stores_[static_cast<std::size_t>(device)];
  const std::int64_t offset = store.take(bytes);
  if (offset < 0) return nullptr;
  std::shared_ptr<Piece> piece(new Piece{&store, device, static_cast<std::size_t>(offset), bytes});
  void* view = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, store.file(), offset);
  if (view == MAP_FAILED) return nullptr;
  std::memset(view, 0xff, bytes);
  munmap(view, bytes);
  return piece;
}

bool Memory::place(Address address, std::size_t bytes, const Piece& piece, std::size_t offset,
                   int protection) {
  void* at = reinterpret_cast<void*>(address - window_ + alias_);
  return mmap(at, bytes, protection, MAP_SHARED | MAP_FIXED, piece.store->file(),
              static_cast<off_t>(piece.offset + offset)) != MAP_FAILED;
}

void Memory::remove(Address address, std::size_t bytes) { nothing_at(address - window_ + alias_, bytes); }

CUresult Memory::reserve(std::size_t bytes, std::size_t alignment, Address* address) {
  if (!bytes || bytes % kGranularity || (alignment & (alignment - 1))) return CUDA_ERROR_INVALID_VALUE;
  std::unique_lock guard(mutex_);
  *address = take_range(free_addresses_, bytes, std::max(alignment, kGranularity));
  if (!*address) return CUDA_ERROR_OUT_OF_MEMORY;
  reserved_[*address] = bytes;
  return CUDA_SUCCESS;
}

CUresult Memory::free_reserved(Address address, std::size_t bytes) {
  std::unique_lock guard(mutex_);
  const auto it = reserved_.find(address);
  if (it == reserved_.end() || it->second != bytes) return CUDA_ERROR_INVALID_VALUE;
  const auto mapped = mappings_.lower_bound(address);
  if (mapped != mappings_.end() && mapped->first < address + bytes) return CUDA_ERROR_INVALID_VALUE;
  reserved_.erase(it);
  give_range(free_addresses_, address, bytes);
  return CUDA_SUCCESS;
}

CUresult Memory::create(int device, std::size_t bytes, CUmemGenericAllocationHandle* handle) {
  if (!bytes || bytes % kGranularity) return CUDA_ERROR_INVALID_VALUE;
  std::shared_ptr<Piece> piece = new_piece(device, bytes);
  if (!piece) return CUDA_ERROR_OUT_OF_MEMORY;
  std::unique_lock guard(mutex_);
  handles_[*handle = next_handle_++] = std::move(piece);
  return CUDA_SUCCESS;
}

CUresult Memory::release(CUmemGenericAllocationHandle handle) {
  std::unique_lock guard(mutex_);
  return handles_.erase(handle) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult Memory::map(Address address, std::size_t bytes, std::size_t offset,
                     CUmemGenericAllocationHandle handle) {
  std::unique_lock guard(mutex_);
  const auto it = handles_.find(handle);
  if (it == handles_.end() || !bytes || bytes % kGranularity || address % kGranularity || offset)
    return CUDA_ERROR_INVALID_VALUE;  // CUDA demands offset 0, too
  if (bytes > it->second->bytes) return CUDA_ERROR_INVALID_VALUE;
  const auto range = reserved_.upper_bound(address);
  if (range == reserved_.begin()) return CUDA_ERROR_INVALID_VALUE;
  const auto& [begin, size] = *std::prev(range);
  if (address + bytes > begin + size) return CUDA_ERROR_INVALID_VALUE;
  const auto next = mappings_.lower_bound(address);
  if (next != mappings_.end() && next->first < address + bytes) return CUDA_ERROR_INVALID_VALUE;
  if (next != mappings_.begin()) {
    const auto before = std::prev(next);
    if (before->first + before->second.bytes > address) return CUDA_ERROR_INVALID_VALUE;
  }
  if (!place(address, bytes, *it->second, 0, PROT_NONE)) return CUDA_ERROR_OUT_OF_MEMORY;
  freed_.erase(freed_.lower_bound(address), freed_.lower_bound(address + bytes));
  mappings_[address] = {bytes, 0, false, it->second};
  return CUDA_SUCCESS;
}

CUresult Memory::unmap(Address address, std::size_t bytes) {
  std::unique_lock guard(mutex_);
  const Address end = address + bytes;  // whole mappings, without gaps
  auto it = mappings_.find(address);
  Address at = address;
  for (auto probe = it; at < end; ++probe) {
    if (probe == mappings_.end() || probe->first != at || probe->second.allocated)
      return CUDA_ERROR_INVALID_VALUE;
    at += probe->second.bytes;
  }
  if (at != end || !bytes) return CUDA_ERROR_INVALID_VALUE;
  remove(address, bytes);
  while (it != mappings_.end() && it->first < end) {
    freed_[it->first] = it->second.bytes;
    it = mappings_.erase(it);
  }
  return CUDA_SUCCESS;
}

CUresult Memory::set_access(Address address, std::size_t bytes, int device, int flags) {
  std::unique_lock guard(mutex_);
  if (device < 0 || device >= static_cast<int>(stores_.size())) return CUDA_ERROR_INVALID_DEVICE;
  if (flags != 0 && flags != 3) return CUDA_ERROR_NOT_SUPPORTED;
  const Address end = address + bytes;
  Address at = address;
  for (auto it = mappings_.find(address); at < end; ++it) {
    if (it == mappings_.end() || it->first != at || it->second.allocated) return CUDA_ERROR_INVALID_VALUE;
    const std::uint64_t bit = std::uint64_t{1} << device;
    it->second.devices = flags ? it->second.devices | bit : it->second.devices & ~bit;
    const int protection = it->second.devices ? PROT_READ | PROT_WRITE : PROT_NONE;
    mprotect(reinterpret_cast<void*>(at - window_ + alias_), it->second.bytes, protection);
    at += it->second.bytes;
  }
  return at == end ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult Memory::allocate(int device, std::size_t bytes, Address* address) {
  if (!bytes) return CUDA_ERROR_INVALID_VALUE;
  const std::size_t size = rounded(bytes, kAlignment), pages = rounded(size, kPage);
  std::shared_ptr<Piece> piece = new_piece(device, pages);
  if (!piece) return CUDA_ERROR_OUT_OF_MEMORY;
  std::unique_lock guard(mutex_);
  if (next_ + pages + kPage > window_ + kWindow) return CUDA_ERROR_OUT_OF_MEMORY;
  if (!place(next_, pages, *piece, 0, PROT_READ | PROT_WRITE)) return CUDA_ERROR_OUT_OF_MEMORY;
  *address = next_ + pages - size;
  mappings_[*address] = {bytes, peers_[static_cast<std::size_t>(device)], true, std::move(piece)};
  next_ += pages + kPage;
  return CUDA_SUCCESS;
}

void Memory::forget(Mappings::iterator it) {
  const Address first_page = it->first / kPage * kPage;
  remove(first_page, it->second.piece->bytes);
  freed_[it->first] = it->second.bytes;
  mappings_.erase(it);
}

CUresult Memory::free(Address address) {
  std::unique_lock guard(mutex_);
  const auto it = mappings_.find(address);
  if (it == mappings_.end() || !it->second.allocated) return CUDA_ERROR_INVALID_VALUE;
  forget(it);
  return CUDA_SUCCESS;
}

void Memory::reset(int device) {
  std::unique_lock guard(mutex_);
  for (auto it = mappings_.begin(); it != mappings_.end();) {
    const auto next = std::next(it);
    if (it->second.allocated && it->second.piece->device == device) forget(it);
    it = next;
  }
  peers_[static_cast<std::size_t>(device)] = std::uint64_t{1} << device;
}

void Memory::enable_peer(int device, int peer) {
  std::unique_lock guard(mutex_);
  const std::uint64_t bit = std::uint64_t{1} << device;
  peers_[static_cast<std::size_t>(peer)] |= bit;
  for (auto& [address, mapping] : mappings_)
    if (mapping.allocated && mapping.piece->device == peer) mapping.devices |= bit;
}

CUresult Memory::allocate_host(std::size_t bytes, void** pointer) {
  if (!bytes) return CUDA_ERROR_INVALID_VALUE;
  const std::size_t size = rounded(bytes, kAlignment), pages = rounded(size, kPage);
  void* view = mmap(nullptr, pages + kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (view == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
  mprotect(static_cast<char*>(view) + pages, kPage, PROT_NONE);
  std::memset(view, 0xff, pages);
  *pointer = static_cast<char*>(view) + pages - size;
  std::unique_lock guard(mutex_);
  pinned_[reinterpret_cast<Address>(*pointer)] = {bytes, view, pages + kPage};
  return CUDA_SUCCESS;
}

CUresult Memory::free_host(void* pointer) {
  std::unique_lock guard(mutex_);
  const auto it = pinned_.find(reinterpret_cast<Address>(pointer));
  if (it == pinned_.end() || !it->second.pages) return CUDA_ERROR_INVALID_VALUE;
  // Nothing else comes to lie there, so that a use of freed memory is always seen.
  nothing_at(reinterpret_cast<Address>(it->second.pages), it->second.pages_bytes);
  pinned_.erase(it);
  return CUDA_SUCCESS;
}

CUresult Memory::register_host(void* pointer, std::size_t bytes) {
  if (!bytes || !pointer) return CUDA_ERROR_INVALID_VALUE;
  std::unique_lock guard(mutex_);
  const auto [it, is_new] =
      pinned_.emplace(reinterpret_cast<Address>(pointer), Pinned{bytes, nullptr, std::size_t{0}});
  return is_new ? CUDA_SUCCESS : CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
}

CUresult Memory::unregister_host(void* pointer) {
  std::unique_lock guard(mutex_);
  const auto it = pinned_.find(reinterpret_cast<Address>(pointer));
  if (it == pinned_.end() || it->second.pages) return CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
  pinned_.erase(it);
  return CUDA_SUCCESS;
}

void Memory::info(int device, std::size_t* free, std::size_t* total) {
  Store& store = *stores_[static_cast<std::size_t>(device)];
  *free = store.free_bytes();
  *total = store.total_bytes();
}

Memory::Mappings::iterator Memory::containing(Address address) {
  auto it = mappings_.upper_bound(address);
  if (it == mappings_.begin()) return mappings_.end();
  --it;
  return address < it->first + it->second.bytes ? it : mappings_.end();
}

bool Memory::covered(Address address, std::size_t bytes, int device) {
  const Address end = address + std::max<std::size_t>(bytes, 1);
  while (address < end) {
    const auto it = containing(address);
    if (it == mappings_.end() || !(it->second.devices >> device & 1)) return false;
    address = it->first + it->second.bytes;
  }
  return true;
}

char* Memory::find(Address address, std::size_t bytes, int device) {
  std::shared_lock guard(mutex_);
  if (in_window(address))
    return covered(address, bytes, device) ? reinterpret_cast<char*>(address - window_ + alias_) : nullptr;
  auto it = pinned_.upper_bound(address);
  if (it == pinned_.begin()) return nullptr;
  --it;
  return address + bytes <= it->first + it->second.bytes ? reinterpret_cast<char*>(address) : nullptr;
}

char* Memory::alias_or_fault(Address address, int device) {
  if (char* found = find(address, 1, device)) return found;
  std::shared_lock guard(mutex_);
  // Of another device: an address of the host window, which faults. Not mapped: the alias faults by itself.
  if (in_window(address))
    return reinterpret_cast<char*>(containing(address) == mappings_.end() ? address - window_ + alias_
                                                                          : address);
  // Pageable memory of the host: no address that a processor accepts.
  return reinterpret_cast<char*>(address | Address{1} << 62);
}

int Memory::device_of(Address address) {
  std::shared_lock guard(mutex_);
  if (in_window(address)) {
    const auto it = containing(address);
    return it == mappings_.end() ? -2 : it->second.piece->device;
  }
  auto it = pinned_.upper_bound(address);
  if (it == pinned_.begin()) return -2;
  --it;
  return address < it->first + it->second.bytes ? -1 : -2;
}

std::string Memory::describe(Address address) {
  std::shared_lock guard(mutex_);
  const bool is_alias = address - alias_ < kWindow;
  if (is_alias) address = address - alias_ + window_;
  char text[200];
  if (!in_window(address)) {
    std::snprintf(text, sizeof text, "%#llx, which is neither memory of a device nor pinned",
                  static_cast<unsigned long long>(address));
    return text;
  }
  const auto say = [&](const char* format, std::size_t distance, std::size_t bytes) {
    std::snprintf(text, sizeof text, format, distance, bytes);
    return std::string(text);
  };
  if (const auto it = containing(address); it != mappings_.end()) {
    const std::size_t at = address - it->first;
    return say("byte %zu of %zu bytes of a device that this one may not access", at, it->second.bytes);
  }
  auto freed = freed_.upper_bound(address);
  if (freed != freed_.begin()) {
    --freed;
    if (address < freed->first + freed->second)
      return say("byte %zu of %zu bytes that were freed", address - freed->first, freed->second);
  }
  const auto after = mappings_.upper_bound(address);
  const Address until = after == mappings_.end() ? ~Address{0} : after->first - address;
  if (after != mappings_.begin()) {
    const auto before = std::prev(after);
    const std::size_t behind = address - before->first - before->second.bytes;
    if (behind < until)
      return say("%zu bytes behind an allocation of %zu bytes", behind, before->second.bytes);
  }
  if (after == mappings_.end()) return "an address of a device where nothing is";
  return say("%zu bytes before an allocation of %zu bytes", until, after->second.bytes);
}

}  // namespace standin
