// Runs an exported program from Go, on an input of ones: prints the outputs' first numbers.
//
//	CGO_CFLAGS="$(python -m weft.info --cflags)" CGO_LDFLAGS="$(python -m weft.info --program-libs)" go run run_program.go FOLDER
package main

// #include <stdlib.h>
// #include <weft/weft.h>
import "C"

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"unsafe"
)

// Errors belong to the thread of the call, so a goroutine that reads one keeps its thread until then.
func checked(call func() C.weft_status) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if call() == C.WEFT_OK {
		return nil
	}
	return errors.New(C.GoString(C.weft_last_error()))
}

// Memory of C's for arrays of float32: what a run is given must not move.
func allocate(count C.int, describe func(C.int, *C.weft_array_type) C.weft_status) ([]C.weft_array, [][]float32, error) {
	arrays, numbers := make([]C.weft_array, count), make([][]float32, count)
	for k := C.int(0); k < count; k++ {
		kind := C.weft_array_type{size: C.sizeof_weft_array_type}
		if err := checked(func() C.weft_status { return describe(k, &kind) }); err != nil {
			return nil, nil, err
		}
		if dtype := C.GoString(kind.dtype); dtype != "float32" {
			return nil, nil, fmt.Errorf("array %d is of %s", k, dtype)
		}
		elements := 1
		for _, n := range unsafe.Slice(kind.shape, kind.ndim) {
			elements *= int(n)
		}
		arrays[k].data = C.calloc(C.size_t(elements)+1, 4)
		numbers[k] = unsafe.Slice((*float32)(arrays[k].data), elements)
	}
	return arrays, numbers, nil
}

func run(folder string) error {
	name := C.CString(folder)
	defer C.free(unsafe.Pointer(name))
	var program *C.weft_program
	if err := checked(func() C.weft_status { return C.weft_program_load(name, &program) }); err != nil {
		return err
	}
	defer C.weft_program_free(program)
	inputs, ones, err := allocate(C.weft_program_input_count(program), func(k C.int, kind *C.weft_array_type) C.weft_status {
		return C.weft_program_input(program, k, kind)
	})
	if err != nil {
		return err
	}
	outputs, results, err := allocate(C.weft_program_output_count(program), func(k C.int, kind *C.weft_array_type) C.weft_status {
		return C.weft_program_output(program, k, kind)
	})
	if err != nil {
		return err
	}
	for _, input := range ones {
		for k := range input {
			input[k] = 1
		}
	}
	err = checked(func() C.weft_status {
		return C.weft_program_run(program, unsafe.SliceData(inputs), unsafe.SliceData(outputs))
	})
	for _, result := range results {
		fmt.Println(result[:min(len(result), 8)])
	}
	return err
}

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: run_program FOLDER")
		os.Exit(1)
	}
	if err := run(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "run_program:", err)
		os.Exit(1)
	}
}
