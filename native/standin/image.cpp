#include "standin/image.h"

#include <cstring>
#include <vector>

#include <elf.h>
#include <sys/mman.h>

namespace standin {
namespace {

constexpr std::size_t kStub = 16;  // of an external function: jmp *[rip], and behind it the address

// One object file while it is linked. Nothing checks the file's offsets: it comes from our own compiler.
class Linker {
 public:
  explicit Linker(const char* bytes)
      : bytes_(bytes),
        header_(reinterpret_cast<const Elf64_Ehdr*>(bytes)),
        sections_(reinterpret_cast<const Elf64_Shdr*>(bytes + header_->e_shoff)) {}

  bool is_loadable() const {
    return std::memcmp(header_->e_ident, ELFMAG, SELFMAG) == 0 && header_->e_ident[EI_CLASS] == ELFCLASS64 &&
           header_->e_machine == EM_X86_64 && header_->e_type == ET_REL;
  }

  bool plan(std::string* error) {
    places_.assign(header_->e_shnum, kNowhere);
    const char* names = bytes_ + sections_[header_->e_shstrndx].sh_offset;
    for (std::size_t k = 0; k < header_->e_shnum; ++k) {
      const Elf64_Shdr& section = sections_[k];
      const std::string name = names + section.sh_name;
      if (section.sh_type == SHT_SYMTAB) symbols_section_ = k;
      if (!(section.sh_flags & SHF_ALLOC) || !section.sh_size || name == ".eh_frame") continue;
      if (section.sh_flags & SHF_WRITE) {
        *error = "section " + name + " can be written";
        return false;
      }
      const std::size_t alignment = section.sh_addralign ? section.sh_addralign : 1;
      end_ = (end_ + alignment - 1) / alignment * alignment;
      places_[k] = end_;
      end_ += section.sh_size;
    }
    if (!symbols_section_) {
      *error = "there are no symbols";
      return false;
    }
    const Elf64_Shdr& table = sections_[symbols_section_];
    symbols_ = reinterpret_cast<const Elf64_Sym*>(bytes_ + table.sh_offset);
    symbols_count_ = table.sh_size / sizeof(Elf64_Sym);
    symbol_names_ = bytes_ + sections_[table.sh_link].sh_offset;
    stubs_ = end_ = (end_ + kStub - 1) / kStub * kStub;
    end_ += kStub * symbols_count_;
    return true;
  }

  std::size_t bytes() const { return end_; }

  bool link(char* memory, std::string* error) {
    for (std::size_t k = 0; k < header_->e_shnum; ++k)
      if (places_[k] != kNowhere && sections_[k].sh_type != SHT_NOBITS)
        std::memcpy(memory + places_[k], bytes_ + sections_[k].sh_offset, sections_[k].sh_size);
    for (std::size_t k = 0; k < header_->e_shnum; ++k) {
      const Elf64_Shdr& section = sections_[k];
      if (section.sh_type != SHT_RELA || places_[section.sh_info] == kNowhere) continue;
      const auto* relocations = reinterpret_cast<const Elf64_Rela*>(bytes_ + section.sh_offset);
      for (std::size_t j = 0; j < section.sh_size / sizeof(Elf64_Rela); ++j)
        if (!relocate(memory, places_[section.sh_info], relocations[j], error)) return false;
    }
    return true;
  }

  bool yields() const { return yields_; }

  template <class F>
  void each_global(F&& use) const {
    for (std::size_t k = 0; k < symbols_count_; ++k) {
      const Elf64_Sym& symbol = symbols_[k];
      if (ELF64_ST_BIND(symbol.st_info) == STB_GLOBAL && symbol.st_shndx < header_->e_shnum &&
          symbol.st_shndx && places_[symbol.st_shndx] != kNowhere)
        use(symbol_names_ + symbol.st_name, ELF64_ST_TYPE(symbol.st_info),
            places_[symbol.st_shndx] + symbol.st_value);
    }
  }

 private:
  static constexpr std::size_t kNowhere = ~std::size_t{0};

  // Where a symbol is; of an external function its stub.
  char* address(char* memory, std::size_t number, std::string* error) {
    const Elf64_Sym& symbol = symbols_[number];
    if (symbol.st_shndx != SHN_UNDEF) {
      if (symbol.st_shndx < header_->e_shnum && places_[symbol.st_shndx] != kNowhere)
        return memory + places_[symbol.st_shndx] + symbol.st_value;
      *error = "a symbol lies in a section that is not loaded";
      return nullptr;
    }
    const char* name = symbol_names_ + symbol.st_name;
    void* function = function_for_kernels(name, &yields_);
    if (!function) {
      *error = std::string("calls ") + name + ", which devices do not have";
      return nullptr;
    }
    char* stub = memory + stubs_ + kStub * number;
    const unsigned char jump[6] = {0xff, 0x25, 0, 0, 0, 0};
    std::memcpy(stub, jump, sizeof jump);
    std::memcpy(stub + sizeof jump, &function, sizeof function);
    return stub;
  }

  bool relocate(char* memory, std::size_t section, const Elf64_Rela& relocation, std::string* error) {
    char* place = memory + section + relocation.r_offset;
    char* target = address(memory, ELF64_R_SYM(relocation.r_info), error);
    if (!target) return false;
    const auto type = ELF64_R_TYPE(relocation.r_info);
    if (type == R_X86_64_64) {
      const char* value = target + relocation.r_addend;
      std::memcpy(place, &value, sizeof value);
      return true;
    }
    if (type == R_X86_64_GOTPCREL || type == R_X86_64_GOTPCRELX || type == R_X86_64_REX_GOTPCRELX) {
      // The address of an external function is behind the jump of its stub.
      if (symbols_[ELF64_R_SYM(relocation.r_info)].st_shndx != SHN_UNDEF) {
        *error = "reads the address of a function of its own";
        return false;
      }
      target += 6;
    } else if (type != R_X86_64_PC32 && type != R_X86_64_PLT32) {
      *error = "has a relocation of type " + std::to_string(type);
      return false;
    }
    const auto distance = static_cast<std::int32_t>(target + relocation.r_addend - place);
    std::memcpy(place, &distance, sizeof distance);
    return true;
  }

  const char* bytes_;
  const Elf64_Ehdr* header_;
  const Elf64_Shdr* sections_;
  std::vector<std::size_t> places_;
  std::size_t symbols_section_ = 0, symbols_count_ = 0, stubs_ = 0, end_ = 0;
  const Elf64_Sym* symbols_ = nullptr;
  const char* symbol_names_ = nullptr;
  bool yields_ = false;
};

}  // namespace

std::unique_ptr<Image> Image::load(const void* bytes, CUresult* result, std::string* error) {
  *result = CUDA_ERROR_INVALID_IMAGE;
  if (std::memcmp(bytes, ELFMAG, SELFMAG) != 0) {
    *error = "the stand-in loads object files for x86-64; this is none";
    return nullptr;
  }
  Linker linker(static_cast<const char*>(bytes));
  if (!linker.is_loadable()) {
    *result = CUDA_ERROR_NO_BINARY_FOR_GPU;
    *error = "an ELF file, but no relocatable object for x86-64";
    return nullptr;
  }
  if (!linker.plan(error)) return nullptr;
  std::unique_ptr<Image> image(new Image);
  image->memory_bytes_ = linker.bytes();
  void* view =
      mmap(nullptr, image->memory_bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (view == MAP_FAILED) {
    *result = CUDA_ERROR_OUT_OF_MEMORY;
    return nullptr;
  }
  image->memory_ = static_cast<char*>(view);
  if (!linker.link(image->memory_, error)) return nullptr;
  mprotect(view, image->memory_bytes_, PROT_READ | PROT_EXEC);
  linker.each_global([&](const char* name, int type, std::size_t at) {
    if (type != STT_FUNC) return;
    const Code code = reinterpret_cast<Code>(image->memory_ + at);
    KernelFunction& function = image->functions_[name];
    function.name = name, function.code = code, function.yields = linker.yields();
  });
  linker.each_global([&](const std::string& name, int type, std::size_t at) {
    const std::size_t dot = name.rfind('.');
    const auto it =
        type == STT_OBJECT ? image->functions_.find(name.substr(0, dot)) : image->functions_.end();
    if (it == image->functions_.end()) return;
    std::size_t value = 0;
    std::memcpy(&value, image->memory_ + at, sizeof value);
    const std::string what = name.substr(dot);
    if (what == ".argument_bytes") it->second.argument_bytes = value;
    if (what == ".threads_of_block") it->second.threads = value;
  });
  *result = CUDA_SUCCESS;
  return image;
}

Image::~Image() {
  if (memory_) munmap(memory_, memory_bytes_);
}

KernelFunction* Image::find(const std::string& name) {
  const auto it = functions_.find(name);
  return it == functions_.end() ? nullptr : &it->second;
}

}  // namespace standin
