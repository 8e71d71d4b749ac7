//! Modules: images loaded into a context.

use std::collections::BTreeMap;
use std::ffi::{c_char, c_int, c_void};

use fake_gpu::MemoryKind;

use crate::calls::{Call, exports};
use crate::driver::Driver;
use crate::function::Function;
use crate::handles::Handle;
use crate::image::{Entry, Image};
use crate::memory::{Allocation, GRANULARITY, What};
use crate::pointers::{get_text, put, put_if};
use crate::result::{Error, FILE_NOT_FOUND, INVALID_HANDLE, INVALID_VALUE, NOT_FOUND, Outcome};

/// A module.
pub(crate) struct Module {
    pub(crate) context: Handle,
    image: Image,
    block: Handle,
    functions: BTreeMap<String, Handle>,
    /// Addresses of variables that have been asked for.
    variables: BTreeMap<String, u64>,
    /// Where the next variable begins in the block.
    next: u64,
}

/// A variable of machine code, whose size is not read, in bytes.
const UNKNOWN_VARIABLE: u64 = 4096;
/// Room for the variables of machine code in a module, in bytes.
const UNKNOWN_VARIABLES: u64 = 64 * UNKNOWN_VARIABLE;

impl Driver {
    pub(crate) fn module(&self, handle: Handle) -> Result<&Module, Error> {
        self.modules.get(handle).ok_or(INVALID_HANDLE)
    }

    /// A function of a module by name.
    pub(crate) fn function_of(&mut self, module: Handle, name: &str) -> Result<Handle, Error> {
        let found = self.module(module)?;
        if let Some(function) = found.functions.get(name) {
            return Ok(*function);
        }
        let context = found.context;
        let entry = match &found.image.entries {
            Some(entries) => {
                entries.iter().find(|entry| entry.name == name).ok_or(NOT_FOUND)?.clone()
            }
            None => Entry::unknown(name),
        };
        let function = self.functions.insert(Function::new(module, context, entry));
        if let Some(module) = self.modules.get_mut(module) {
            module.functions.insert(name.to_string(), function);
        }
        Ok(function)
    }

    /// Address and size of a variable of a module.
    pub(crate) fn variable_of(&mut self, handle: Handle, name: &str) -> Result<(u64, u64), Error> {
        let module = self.modules.get_mut(handle).ok_or(INVALID_HANDLE)?;
        let known = module.image.variables.iter().find(|(other, _)| other == name);
        let size = match (known, &module.image.entries) {
            (Some((_, size)), _) => *size,
            (None, None) => UNKNOWN_VARIABLE,
            (None, Some(_)) => return Err(NOT_FOUND),
        };
        if let Some(address) = module.variables.get(name) {
            return Ok((*address, size));
        }
        let block = self.blocks.get(module.block).ok_or(INVALID_HANDLE)?;
        let address = block.address + module.next;
        if address + size > block.address + block.size {
            return Err(NOT_FOUND);
        }
        module.next += size.next_multiple_of(256);
        module.variables.insert(name.to_string(), address);
        let (context, block) = (module.context, module.block);
        let device = self.context(context)?.device;
        let what = What::Variable;
        self.keep(
            address,
            Allocation { size, context, device, what, block, serial: 0, sync_operations: false },
        );
        Ok((address, size))
    }
}

impl Call {
    /// Loads an image into a context: it takes its size in steps of the GPU's memory, and room for
    /// variables.
    pub(crate) fn load(
        &self,
        driver: &mut Driver,
        context: Handle,
        image: Image,
    ) -> Result<Handle, Error> {
        let device = driver.context(context)?.device;
        let sizes = image.variables.iter().map(|(_, size)| size.next_multiple_of(256));
        let variables: u64 = if image.entries.is_some() { sizes.sum() } else { UNKNOWN_VARIABLES };
        let size = (image.size.max(1) + variables).next_multiple_of(GRANULARITY);
        let block = driver.make_block(self.process, device, MemoryKind::Module, size, false)?;
        let module = Module {
            context,
            image,
            block,
            functions: BTreeMap::new(),
            variables: BTreeMap::new(),
            next: 0,
        };
        Ok(driver.modules.insert(module))
    }

    /// Takes a module away with all that is in it.
    pub(crate) fn unload(&self, driver: &mut Driver, handle: Handle) {
        let Some(module) = driver.modules.remove(handle) else { return };
        for function in module.functions.into_values() {
            driver.functions.remove(function);
        }
        for address in module.variables.into_values() {
            driver.allocations.remove(&address);
        }
        driver.drop_block(self.process, module.block);
    }

    fn load_current(&self, to: *mut Handle, image: *const c_void) -> Outcome {
        let mut driver = self.lock();
        let context = self.current(&driver)?.0;
        driver.forbid_unsafe()?;
        if to.is_null() || image.is_null() {
            return Err(INVALID_VALUE);
        }
        let module = self.load(&mut driver, context, Image::at(image))?;
        put(to, module)
    }
}

/// Reads an image from a file.
pub(crate) fn read_file(name: *const c_char) -> Result<Image, Error> {
    let bytes = std::fs::read(get_text(name)?).map_err(|_| FILE_NOT_FOUND)?;
    Ok(Image::of_file(bytes))
}

exports! { MODULE;
    "cuModuleLoad" 2000 call fn cuModuleLoad(to: *mut Handle, file: *const c_char) |call| {
        let image = read_file(file)?;
        let mut driver = call.lock();
        let context = call.current(&driver)?.0;
        driver.forbid_unsafe()?;
        if to.is_null() { return Err(INVALID_VALUE) }
        put(to, call.load(&mut driver, context, image)?)
    }

    "cuModuleLoadData" 2000 call fn cuModuleLoadData(to: *mut Handle, image: *const c_void) |call| {
        call.load_current(to, image)
    }

    "cuModuleLoadDataEx" 2010 call fn cuModuleLoadDataEx(
        to: *mut Handle, image: *const c_void, _count: u32, _options: *const u32,
        _values: *const *mut c_void,
    ) |call| { call.load_current(to, image) }

    "cuModuleLoadFatBinary" 2000 call fn cuModuleLoadFatBinary(to: *mut Handle, image: *const c_void)
    |call| { call.load_current(to, image) }

    "cuModuleUnload" 2000 call fn cuModuleUnload(module: Handle) |call| {
        let mut driver = call.lock();
        driver.module(module)?;
        driver.forbid_unsafe()?;
        call.unload(&mut driver, module);
        Ok(())
    }

    "cuModuleGetLoadingMode" 11070 call fn cuModuleGetLoadingMode(to: *mut c_int) |_| {
        const EAGER: c_int = 1;
        const LAZY: c_int = 2;
        let eager = std::env::var("CUDA_MODULE_LOADING").is_ok_and(|mode| mode == "EAGER");
        put(to, if eager { EAGER } else { LAZY })
    }

    "cuModuleGetFunction" 2000 call fn cuModuleGetFunction(
        to: *mut Handle, module: Handle, name: *const c_char,
    ) |call| { put(to, call.lock().function_of(module, &get_text(name)?)?) }

    "cuModuleGetFunctionCount" 12040 call fn cuModuleGetFunctionCount(to: *mut u32, module: Handle)
    |call| {
        let driver = call.lock();
        let entries = driver.module(module)?.image.entries.as_ref().map_or(0, Vec::len);
        put(to, u32::try_from(entries).unwrap_or(u32::MAX))
    }

    "cuModuleEnumerateFunctions" 12040 call fn cuModuleEnumerateFunctions(
        to: *mut Handle, room: u32, module: Handle,
    ) |call| {
        let mut driver = call.lock();
        let entries = driver.module(module)?.image.entries.clone().unwrap_or_default();
        for (at, entry) in entries.iter().take(room as usize).enumerate() {
            let function = driver.function_of(module, &entry.name)?;
            put(to.wrapping_add(at), function)?;
        }
        Ok(())
    }

    "cuModuleGetGlobal" 3020 call fn cuModuleGetGlobal_v2(
        to: *mut u64, bytes: *mut usize, module: Handle, name: *const c_char,
    ) |call| {
        let (address, size) = call.lock().variable_of(module, &get_text(name)?)?;
        put_if(to, address);
        put_if(bytes, size as usize);
        Ok(())
    }
}
