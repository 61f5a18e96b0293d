// stored.h: programs as bytes: what an exported folder holds of them.
//
// The members of Program are listed once, in stored.cpp, for writing and reading. Kernels are written by how
// they were made: native ones and oneDNN's by `Kernel::recipe`, loops by their form and a symbol for each
// pattern that they have code for. Bytes that are no program raise FormatError and take memory in proportion
// to their number; what a program computes is trusted, as the machine code beside it is.
#pragma once

#include <functional>

#include "program/archive.h"
#include "program/loop.h"
#include "program/program.h"

namespace weft {

// What a file of a folder says before its programs.
struct ExportedHeader {
  struct Array {
    std::string name;
    DType dtype = DType::float32;
    std::vector<int64_t> shape;
  };
  // strides: in elements. offset: in the file of weights. is_written: some program changes it.
  struct Weight {
    Array array;
    std::vector<int64_t> strides;
    int64_t offset = 0;
    bool is_written = false;
  };
  struct Argument {
    Array array;
    bool is_written = false;
  };
  // is_input: number is that of an input of the program, else of an output.
  struct Result {
    Array array;
    bool is_input = false;
    int number = 0;
  };
  // A program for arguments of these sizes. inputs: of the program: argument k, or weight -1 - k. numbers: of
  // the program: the argument, without dimensions.
  struct Variant {
    std::vector<Argument> arguments;
    std::vector<int> inputs, numbers;
    std::vector<Result> results;
  };
  std::string name, version, level;  // version: of weft, which alone reads it
  uint64_t code_digest = 0, weights_bytes = 0;
  std::vector<Weight> weights;
  std::vector<Variant> variants;  // at least one; as many programs follow
};
void write_header(Writer& writer, const ExportedHeader& header);
ExportedHeader read_header(Reader& reader);
// The whole file: what tells a damaged one from a whole one, then the content.
std::string sealed(const std::string& content);
std::string_view unsealed(std::string_view file);  // raises FormatError
const char* exported_version() noexcept;

// The name in object code of a loop's code for a pattern.
using SymbolOf = std::function<std::string(const Loop& loop, const LoopPattern& pattern)>;
// Raised, with the operator and the user's line, for what cannot be written.
struct CannotStore : std::runtime_error {
  using std::runtime_error::runtime_error;
};
void write_program(Writer& writer, const Program& program, const SymbolOf& symbol_of);

using AddressOf = std::function<Loop::Code(const std::string& symbol)>;
// Makes the kernel that a recipe describes, whose name has been read. Raises FormatError.
using MakeKernel = std::function<Ref<Kernel>(const std::string& name, Reader& arguments)>;
// The size of an operand in a layout that a library chose; 0: it follows from the operand's geometry.
using LayoutBytes = std::function<size_t(const Kernel& kernel, int operand)>;
Ref<const Program> read_program(Reader& reader, const AddressOf& address_of, const MakeKernel& make_kernel,
                                const LayoutBytes& layout_bytes);

}  // namespace weft
