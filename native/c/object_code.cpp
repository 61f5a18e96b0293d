#include "c/object_code.h"

#include <dlfcn.h>
#include <elf.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <new>
#include <vector>

#include "program/archive.h"

namespace weft {
namespace {

[[noreturn]] void fail(const std::string& fact) { throw FormatError("object code: " + fact); }

// Structures of the file, each inside of it.
class Image {
 public:
  explicit Image(std::string_view bytes) : bytes_(bytes) {}
  template <class T>
  T at(size_t offset, size_t index = 0) const {
    T value;
    std::memcpy(&value, range(offset + index * sizeof(T), sizeof(T)).data(), sizeof(T));
    return value;
  }
  size_t size() const { return bytes_.size(); }
  std::string_view range(size_t offset, size_t size) const {
    if (offset > bytes_.size() || size > bytes_.size() - offset) fail("it is cut off");
    return bytes_.substr(offset, size);
  }
  std::string text(const Elf64_Shdr& table, size_t offset) const {
    const std::string_view texts = range(table.sh_offset, table.sh_size);
    if (offset >= texts.size()) fail("a name is outside of its table");
    const size_t end = texts.find('\0', offset);
    if (end == texts.npos) fail("a name has no end");
    return std::string(texts.substr(offset, end - offset));
  }

 private:
  std::string_view bytes_;
};

constexpr size_t kStub = 16;  // jmp *[rip]; address: which is a slot of a table of addresses, too
constexpr size_t kSlot = 8;   // where the address is in it

size_t aligned(size_t size, size_t alignment) { return (size + alignment - 1) / alignment * alignment; }

class Linker {
 public:
  explicit Linker(std::string_view object) : image_(object), header_(image_.at<Elf64_Ehdr>(0)) {
    if (std::memcmp(header_.e_ident, ELFMAG, SELFMAG) != 0 || header_.e_type != ET_REL ||
        header_.e_machine != EM_X86_64)
      fail("it is no object file for x86-64");
    for (size_t k = 0; k < header_.e_shnum; ++k)
      sections_.push_back(image_.at<Elf64_Shdr>(header_.e_shoff, k));
    offsets_.resize(sections_.size());
    for (size_t k = 0; k < sections_.size(); ++k) place(k);
    stubs_ = aligned(size_, kStub);
    size_ = stubs_ + relocations_ * kStub;
  }

  size_t size() const { return size_; }

  void link(char* memory, std::map<std::string, void*, std::less<>>& functions) {
    memory_ = memory;
    for (size_t k = 0; k < sections_.size(); ++k)
      if (is_loaded(k) && sections_[k].sh_type != SHT_NOBITS) {
        const std::string_view content = image_.range(sections_[k].sh_offset, sections_[k].sh_size);
        std::memcpy(memory + offsets_[k], content.data(), content.size());
      }
    for (size_t k = 0; k < sections_.size(); ++k) {
      if (sections_[k].sh_type == SHT_SYMTAB) read_symbols(sections_[k], functions);
      if (sections_[k].sh_type == SHT_RELA && sections_[k].sh_info < sections_.size() &&
          is_loaded(sections_[k].sh_info))
        relocate(sections_[k]);
    }
  }

 private:
  bool is_loaded(size_t section) const {
    const std::string name = image_.text(sections_.at(header_.e_shstrndx), sections_[section].sh_name);
    return (sections_[section].sh_flags & SHF_ALLOC) &&
           name != ".eh_frame";  // nothing unwinds through kernels
  }

  void place(size_t k) {
    const Elf64_Shdr& section = sections_[k];
    if (header_.e_shstrndx >= sections_.size()) fail("it has no names of sections");
    if (section.sh_type == SHT_RELA)
      relocations_ += image_.range(section.sh_offset, section.sh_size).size() / sizeof(Elf64_Rela);
    if (!is_loaded(k)) return;
    const size_t alignment = section.sh_addralign ? section.sh_addralign : 1;
    if (alignment > 4096 || section.sh_size > image_.size() || size_ > (size_t{1} << 30))
      fail("a section is too large");
    size_ = aligned(size_, alignment);
    offsets_[k] = size_;
    size_ += section.sh_size;
  }

  Elf64_Sym symbol_at(const Elf64_Shdr& table, size_t index) const {
    if (index >= table.sh_size / sizeof(Elf64_Sym)) fail("a symbol is outside of its table");
    return image_.at<Elf64_Sym>(table.sh_offset, index);
  }

  void read_symbols(const Elf64_Shdr& table, std::map<std::string, void*, std::less<>>& functions) const {
    for (size_t k = 0; k < table.sh_size / sizeof(Elf64_Sym); ++k) {
      const Elf64_Sym symbol = symbol_at(table, k);
      if (ELF64_ST_TYPE(symbol.st_info) != STT_FUNC || symbol.st_shndx >= sections_.size()) continue;
      functions[image_.text(sections_.at(table.sh_link), symbol.st_name)] = address_of(symbol);
    }
  }

  char* address_of(const Elf64_Sym& symbol) const {
    const Elf64_Shdr& section = sections_.at(symbol.st_shndx);
    if (!is_loaded(symbol.st_shndx) || symbol.st_value > section.sh_size)
      fail("a symbol is outside of its section");
    return memory_ + offsets_[symbol.st_shndx] + symbol.st_value;
  }

  // A stub for an address outside, or for a slot with one inside.
  char* stub_of(const void* address) {
    char*& stub = made_[address];
    if (!stub) {
      stub = memory_ + stubs_ + (made_.size() - 1) * kStub;
      static constexpr unsigned char kJump[kSlot] = {0xff, 0x25, 2, 0, 0, 0, 0x90, 0x90};
      std::memcpy(stub, kJump, kSlot);
      std::memcpy(stub + kSlot, &address, sizeof address);
    }
    return stub;
  }

  void relocate(const Elf64_Shdr& list) {
    const Elf64_Shdr& target = sections_[list.sh_info];
    const Elf64_Shdr& symbols = sections_.at(list.sh_link);
    for (size_t k = 0; k < list.sh_size / sizeof(Elf64_Rela); ++k) {
      const auto rela = image_.at<Elf64_Rela>(list.sh_offset, k);
      const Elf64_Sym symbol = symbol_at(symbols, ELF64_R_SYM(rela.r_info));
      const auto type = ELF64_R_TYPE(rela.r_info);
      const size_t width = type == R_X86_64_64 || type == R_X86_64_PC64 ? 8 : 4;
      if (rela.r_offset > target.sh_size || width > target.sh_size - rela.r_offset)
        fail("a relocation is outside of its section");
      apply(memory_ + offsets_[list.sh_info] + rela.r_offset, type, symbol, rela.r_addend,
            image_.text(sections_.at(symbols.sh_link), symbol.st_name));
    }
  }

  void apply(char* place, uint64_t type, const Elf64_Sym& symbol, int64_t addend, const std::string& name) {
    const bool is_outside = symbol.st_shndx == SHN_UNDEF;
    char* address = nullptr;
    if (is_outside) {
      address = static_cast<char*>(dlsym(RTLD_DEFAULT, name.c_str()));
      if (!address) fail("this process has no function '" + name + "'");
    } else {
      address = address_of(symbol);
    }
    // Sums of integers, since an addend may be anything.
    const auto sum = [&](const char* at) {
      return reinterpret_cast<uint64_t>(at) + static_cast<uint64_t>(addend);
    };
    const auto distance = [&](const char* at) {
      return static_cast<int64_t>(sum(at) - reinterpret_cast<uint64_t>(place));
    };
    switch (type) {
      case R_X86_64_64: {
        const uint64_t value = sum(address);
        std::memcpy(place, &value, sizeof value);
        return;
      }
      case R_X86_64_PC64: {
        const int64_t value = distance(address);
        std::memcpy(place, &value, sizeof value);
        return;
      }
      case R_X86_64_PLT32:
      case R_X86_64_PC32:
        put_near(place, distance(is_outside ? stub_of(address) : address));
        return;
      case R_X86_64_GOTPCREL:
      case R_X86_64_GOTPCRELX:
      case R_X86_64_REX_GOTPCRELX:
        put_near(place, distance(stub_of(address) + kSlot));
        return;
      default:
        fail("a relocation of kind " + std::to_string(type));
    }
  }

  static void put_near(char* place, int64_t distance) {
    const auto value = static_cast<int32_t>(distance);
    if (value != distance) fail("two of its sections are too far apart");
    std::memcpy(place, &value, sizeof value);
  }

  const Image image_;
  const Elf64_Ehdr header_;
  std::vector<Elf64_Shdr> sections_;
  std::vector<size_t> offsets_;
  size_t size_ = 0, stubs_ = 0, relocations_ = 0;
  char* memory_ = nullptr;
  std::map<const void*, char*> made_;
};

}  // namespace

ObjectCode::ObjectCode(std::string_view object) {
  Linker linker(object);
  size_ = aligned(linker.size() + 1, static_cast<size_t>(sysconf(_SC_PAGESIZE)));
  void* const memory = mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  memory_ = static_cast<char*>(memory);
  try {
    linker.link(memory_, functions_);
    if (mprotect(memory_, size_, PROT_READ | PROT_EXEC) != 0) fail("the system does not allow it to run");
  } catch (...) {
    munmap(memory_, size_);
    throw;
  }
}

ObjectCode::~ObjectCode() {
  if (memory_) munmap(memory_, size_);
}

void* ObjectCode::find(const std::string& symbol) const {
  const auto it = functions_.find(symbol);
  if (it == functions_.end()) fail("there is no function '" + symbol + "'");
  return it->second;
}

}  // namespace weft
