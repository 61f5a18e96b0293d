// Runs an exported program from Java (22 or newer), on an input of ones: prints the outputs' first numbers.
//
//     java --enable-native-access=ALL-UNNAMED RunProgram.java LIBRARY FOLDER
//
// LIBRARY: the path of libweft.so.1. jextract makes the declarations from weft/weft.h.
import static java.lang.foreign.ValueLayout.ADDRESS;
import static java.lang.foreign.ValueLayout.JAVA_FLOAT;
import static java.lang.foreign.ValueLayout.JAVA_INT;
import static java.lang.foreign.ValueLayout.JAVA_LONG;

import java.lang.foreign.Arena;
import java.lang.foreign.FunctionDescriptor;
import java.lang.foreign.Linker;
import java.lang.foreign.MemoryLayout;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.SymbolLookup;
import java.lang.invoke.MethodHandle;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;

public final class RunProgram {
    // weft_array_type: size, name, dtype, item_bytes, ndim, shape, is_written. Offsets follow from C's layout.
    private static final long TYPE_BYTES = 56, DTYPE = 16, NDIM = 32, SHAPE = 40;
    private static final long ARRAY_BYTES = 16;

    private final SymbolLookup library;
    private final Arena arena;
    private final MemorySegment program;

    private RunProgram(String path, String folder, Arena arena) throws Throwable {
        this.arena = arena;
        library = SymbolLookup.libraryLookup(Path.of(path), arena);
        MemorySegment handle = arena.allocate(ADDRESS);
        check(function("weft_program_load", ADDRESS, ADDRESS), arena.allocateFrom(folder), handle);
        program = handle.get(ADDRESS, 0);
    }

    // A function that returns an int: a status or a count.
    private MethodHandle function(String name, MemoryLayout... parameters) {
        return Linker.nativeLinker().downcallHandle(
            library.find(name).orElseThrow(), FunctionDescriptor.of(JAVA_INT, parameters));
    }

    private void check(MethodHandle call, Object... arguments) throws Throwable {
        if ((int) call.invokeWithArguments(arguments) == 0) return;
        MethodHandle text = Linker.nativeLinker().downcallHandle(
            library.find("weft_last_error").orElseThrow(), FunctionDescriptor.of(ADDRESS));
        throw new IllegalStateException(((MemorySegment) text.invoke()).reinterpret(Long.MAX_VALUE).getString(0));
    }

    // Memory for the inputs or outputs, all of which have to be of float32.
    private List<MemorySegment> memory(String kind) throws Throwable {
        List<MemorySegment> all = new ArrayList<>();
        int count = (int) function("weft_program_" + kind + "_count", ADDRESS).invoke(program);
        for (int number = 0; number < count; ++number) {
            MemorySegment type = arena.allocate(TYPE_BYTES, 8);
            type.set(JAVA_LONG, 0, TYPE_BYTES);
            check(function("weft_program_" + kind, ADDRESS, JAVA_INT, ADDRESS), program, number, type);
            String dtype = type.get(ADDRESS, DTYPE).reinterpret(Long.MAX_VALUE).getString(0);
            if (!dtype.equals("float32")) throw new IllegalStateException(kind + " " + number + " is of " + dtype);
            int dimensions = type.get(JAVA_INT, NDIM);
            MemorySegment shape = type.get(ADDRESS, SHAPE).reinterpret(8L * dimensions);
            long elements = 1;
            for (int d = 0; d < dimensions; ++d) elements *= shape.getAtIndex(JAVA_LONG, d);
            all.add(arena.allocate(JAVA_FLOAT, elements));
        }
        return all;
    }

    private MemorySegment arrays(List<MemorySegment> memory) {
        MemorySegment all = arena.allocate(ARRAY_BYTES * Math.max(memory.size(), 1), 8);
        for (int k = 0; k < memory.size(); ++k) all.set(ADDRESS, ARRAY_BYTES * k, memory.get(k));
        return all;
    }

    public static void main(String[] words) throws Throwable {
        if (words.length != 2) throw new IllegalArgumentException("usage: RunProgram LIBRARY FOLDER");
        try (Arena arena = Arena.ofShared()) {
            RunProgram run = new RunProgram(words[0], words[1], arena);
            List<MemorySegment> inputs = run.memory("input"), outputs = run.memory("output");
            for (MemorySegment x : inputs) {
                for (long k = 0; k < x.byteSize() / 4; ++k) x.setAtIndex(JAVA_FLOAT, k, 1);
            }
            run.check(run.function("weft_program_run", ADDRESS, ADDRESS, ADDRESS),
                      run.program, run.arrays(inputs), run.arrays(outputs));
            for (MemorySegment y : outputs) {
                float[] numbers = y.toArray(JAVA_FLOAT);
                System.out.println(Arrays.toString(Arrays.copyOf(numbers, Math.min(numbers.length, 8))));
            }
            Linker.nativeLinker().downcallHandle(run.library.find("weft_program_free").orElseThrow(),
                                                 FunctionDescriptor.ofVoid(ADDRESS)).invoke(run.program);
        }
    }
}
