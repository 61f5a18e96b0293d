//! Runs an exported program from Rust, on an input of ones: prints the outputs' first numbers.
//!
//!     rustc run_program.rs -L DIR -l dylib:+verbatim=libweft.so.1 -C link-arg=-Wl,-rpath,DIR
//!     run_program FOLDER
//!
//! DIR: the folder of libweft.so.1; `python -m weft.info --program-libs` prints it. bindgen makes the same
//! declarations from weft/weft.h.
use std::ffi::{c_char, c_int, c_void, CStr, CString};
use std::ptr::{null, null_mut};

#[repr(C)]
struct ArrayType {
    size: usize,
    name: *const c_char,
    dtype: *const c_char,
    item_bytes: usize,
    ndim: c_int,
    shape: *const i64,
    is_written: c_int,
}

#[repr(C)]
struct Array {
    data: *mut c_void,
    strides: *const i64,
}

extern "C" {
    fn weft_last_error() -> *const c_char;
    fn weft_program_load(folder: *const c_char, program: *mut *mut c_void) -> c_int;
    fn weft_program_free(program: *mut c_void);
    fn weft_program_input_count(program: *const c_void) -> c_int;
    fn weft_program_output_count(program: *const c_void) -> c_int;
    fn weft_program_input(program: *const c_void, number: c_int, array: *mut ArrayType) -> c_int;
    fn weft_program_output(program: *const c_void, number: c_int, array: *mut ArrayType) -> c_int;
    fn weft_program_run(program: *mut c_void, inputs: *const Array, outputs: *const Array) -> c_int;
}

type Describe = unsafe extern "C" fn(*const c_void, c_int, *mut ArrayType) -> c_int;

fn checked(status: c_int) -> Result<(), String> {
    if status == 0 {
        return Ok(());
    }
    Err(unsafe { CStr::from_ptr(weft_last_error()) }.to_string_lossy().into_owned())
}

/// A program, which any number of threads may run.
struct Program(*mut c_void);
unsafe impl Send for Program {}
unsafe impl Sync for Program {}

impl Program {
    fn load(folder: &str) -> Result<Program, String> {
        let folder = CString::new(folder).map_err(|error| error.to_string())?;
        let mut program = null_mut();
        checked(unsafe { weft_program_load(folder.as_ptr(), &mut program) })?;
        Ok(Program(program))
    }

    /// The numbers of elements of the inputs or outputs, all of which have to be of float32.
    fn sizes(&self, count: c_int, describe: Describe) -> Result<Vec<usize>, String> {
        (0..count).map(|number| {
            let mut array = ArrayType { size: std::mem::size_of::<ArrayType>(), name: null(), dtype: null(),
                                        item_bytes: 0, ndim: 0, shape: null(), is_written: 0 };
            checked(unsafe { describe(self.0, number, &mut array) })?;
            if unsafe { CStr::from_ptr(array.dtype) }.to_bytes() != b"float32" {
                return Err(format!("array {number} is not of float32"));
            }
            Ok((0..array.ndim as usize).map(|d| unsafe { *array.shape.add(d) } as usize).product())
        }).collect()
    }

    fn input_sizes(&self) -> Result<Vec<usize>, String> {
        self.sizes(unsafe { weft_program_input_count(self.0) }, weft_program_input)
    }

    fn run(&self, inputs: &[Vec<f32>]) -> Result<Vec<Vec<f32>>, String> {
        let sizes = self.input_sizes()?;
        if !inputs.iter().map(Vec::len).eq(sizes.iter().copied()) {
            return Err(format!("inputs have to have {sizes:?} elements"));
        }
        let count = unsafe { weft_program_output_count(self.0) };
        let mut outputs: Vec<Vec<f32>> =
            self.sizes(count, weft_program_output)?.into_iter().map(|size| vec![0.0; size]).collect();
        let given: Vec<Array> =
            inputs.iter().map(|x| Array { data: x.as_ptr() as *mut c_void, strides: null() }).collect();
        let wanted: Vec<Array> =
            outputs.iter_mut().map(|y| Array { data: y.as_mut_ptr().cast(), strides: null() }).collect();
        checked(unsafe { weft_program_run(self.0, given.as_ptr(), wanted.as_ptr()) })?;
        Ok(outputs)
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        unsafe { weft_program_free(self.0) }
    }
}

fn run() -> Result<(), String> {
    let folder = std::env::args().nth(1).ok_or("usage: run_program FOLDER")?;
    let program = Program::load(&folder)?;
    let inputs: Vec<Vec<f32>> = program.input_sizes()?.into_iter().map(|size| vec![1.0; size]).collect();
    for output in program.run(&inputs)? {
        println!("{:?}", &output[..output.len().min(8)]);
    }
    Ok(())
}

fn main() {
    if let Err(text) = run() {
        eprintln!("run_program: {text}");
        std::process::exit(1);
    }
}
