//! Device memory that other processes may map: a block moves into a file in the machine's folder, and
//! a token of 64 bytes says which.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use fake_gpu::Claim;

use crate::addresses::LARGE;
use crate::calls::Process;
use crate::driver::Driver;
use crate::handles::Handle;
use crate::layouts::Token;
use crate::mapping;
use crate::memory::{Allocation, Block, What};
use crate::result::{
    Error, INVALID_CONTEXT, INVALID_VALUE, MAP_FAILED, OPERATING_SYSTEM, OUT_OF_MEMORY, Outcome,
};

/// A file that holds a block.
pub(crate) struct SharedFile {
    path: PathBuf,
    /// This process has made it.
    mine: bool,
    /// How often this process has opened it.
    pub(crate) opens: u32,
}

impl SharedFile {
    /// Takes the file away; those who have mapped it keep their bytes.
    pub(crate) fn remove(self) {
        if self.mine {
            let _ = std::fs::remove_file(self.path);
        }
    }
}

/// What a token says: words after a word that marks ours.
struct Said {
    pid: u64,
    /// Number of the file among those of the process.
    file: u64,
    claim: u64,
    size: u64,
    /// Where in the block the memory begins, and how long it is.
    offset: u64,
    bytes: u64,
}

const MARK: u64 = u64::from_le_bytes(*b"fakecuda");

impl Said {
    fn write(&self) -> Token {
        let words = [MARK, self.pid, self.file, self.claim, self.size, self.offset, self.bytes, 0];
        let mut token = Token([0; 64]);
        for (to, word) in token.0.chunks_mut(8).zip(words) {
            to.copy_from_slice(&word.to_le_bytes());
        }
        token
    }

    fn read(token: &Token) -> Result<Self, Error> {
        let words: Vec<u64> = token
            .0
            .chunks(8)
            .map(|bytes| u64::from_le_bytes(bytes.try_into().unwrap_or_default()))
            .collect();
        match words[..] {
            [MARK, pid, file, claim, size, offset, bytes, _] => {
                Ok(Self { pid, file, claim, size, offset, bytes })
            }
            _ => Err(INVALID_VALUE),
        }
    }
}

fn path(process: &Process, pid: u64, file: u64) -> PathBuf {
    process.machine.folder().join(format!("memory-{pid}-{file}"))
}

impl Driver {
    /// Offers the memory at an address to other processes.
    pub(crate) fn offer(&mut self, process: &Process, address: u64) -> Result<Token, Error> {
        let (start, found) = self.allocation(address).ok_or(INVALID_VALUE)?;
        let (handle, bytes) = (found.block, found.size);
        let number = self.next_serial();
        let block = self.blocks.get_mut(handle).ok_or(INVALID_VALUE)?;
        let claim = block.claim.ok_or(INVALID_VALUE)?;
        let pid = u64::from(std::process::id());
        if block.file.is_none() {
            let path = path(process, pid, number);
            into_file(block, &path)?;
            block.file = Some(SharedFile { path, mine: true, opens: 0 });
        }
        let name = block.file.as_ref().and_then(|file| file.path.file_name()?.to_str());
        let number = name.and_then(|name| name.rsplit('-').next()?.parse().ok());
        let file = number.ok_or(OPERATING_SYSTEM)?;
        let offset = start - block.address;
        Ok(Said { pid, file, claim: claim.0, size: block.size, offset, bytes }.write())
    }

    /// Maps memory that another process has offered; where it begins. Opening it again gives the same
    /// address.
    pub(crate) fn open(
        &mut self,
        process: &Process,
        context: Handle,
        token: &Token,
        what: What,
    ) -> Result<u64, Error> {
        let said = Said::read(token)?;
        if said.pid == u64::from(std::process::id()) {
            return Err(INVALID_CONTEXT);
        }
        let path = path(process, said.pid, said.file);
        let handle = match self.opened(&path) {
            Some(handle) => handle,
            None => self.open_block(process, &said, path)?,
        };
        let device = self.context(context)?.device;
        let block = self.blocks.get_mut(handle).ok_or(INVALID_VALUE)?;
        let address = block.address + said.offset;
        // Handles of a process are opened by one context (cuda.h, `cuIpcOpenMemHandle`).
        let before = self.allocations.get(&address).filter(|before| before.what == What::Opened);
        if what == What::Opened && before.is_some_and(|before| before.context != context) {
            return Err(INVALID_CONTEXT);
        }
        if let Some(file) = &mut block.file {
            file.opens += 1;
        }
        let size = said.bytes;
        let allocation = Allocation {
            size,
            context,
            device,
            what,
            block: handle,
            serial: 0,
            sync_operations: false,
        };
        Ok(self.keep(address, allocation))
    }

    /// The block in which a file of another process is mapped.
    fn opened(&self, path: &std::path::Path) -> Option<Handle> {
        let is_it = |block: &Block| block.file.as_ref().is_some_and(|file| file.path == path);
        self.blocks.find(is_it).first().copied()
    }

    fn open_block(
        &mut self,
        process: &Process,
        said: &Said,
        path: PathBuf,
    ) -> Result<Handle, Error> {
        let file = File::options().read(true).write(true).open(&path).map_err(|_| MAP_FAILED)?;
        let claim = Claim(said.claim);
        if !process.gpus.keep(claim) {
            return Err(MAP_FAILED);
        }
        let address = self.arena.take(said.size, LARGE);
        let mapped = address.filter(|at| mapping::map_file(*at, said.size, &file, 0));
        let Some(address) = mapped else {
            process.gpus.give(claim);
            return Err(OUT_OF_MEMORY);
        };
        let file = Some(SharedFile { path, mine: false, opens: 0 });
        let claim = Some(claim);
        let block = Block { address, size: said.size, claim, parts: None, touched: true, file };
        Ok(self.blocks.insert(block))
    }

    /// Lets memory of another process go.
    pub(crate) fn close_opened(&mut self, process: &Process, address: u64) -> Outcome {
        let found = self.allocations.get(&address).ok_or(INVALID_VALUE)?;
        let (What::Opened | What::Imported) = found.what else { return Err(INVALID_VALUE) };
        let handle = found.block;
        let file = self.blocks.get_mut(handle).and_then(|block| block.file.as_mut());
        let opens = file.map_or(0, |file| {
            file.opens = file.opens.saturating_sub(1);
            file.opens
        });
        // Others of the same block may lie at other addresses.
        let block = self.blocks.get(handle).map_or(0, |block| block.address);
        let alone = self.allocations.values().filter(|other| other.block == handle).count() == 1;
        if opens == 0 || !alone {
            self.allocations.remove(&address);
        }
        if opens == 0 && block != 0 {
            self.drop_block(process, handle);
        }
        Ok(())
    }
}

/// Moves a block's bytes into a new file and maps that in their place.
fn into_file(block: &Block, path: &std::path::Path) -> Outcome {
    let file = OpenOptions::new().read(true).write(true).create_new(true).open(path);
    let file = file.map_err(|_| OPERATING_SYSTEM)?;
    file.set_len(block.size).map_err(|_| OPERATING_SYSTEM)?;
    if block.touched {
        let bytes = mapping::bytes(block.address, block.size as usize);
        file.write_all_at(bytes, 0).map_err(|_| OPERATING_SYSTEM)?;
    }
    mapping::forget(block.address, block.size);
    if mapping::map_file(block.address, block.size, &file, 0) { Ok(()) } else { Err(MAP_FAILED) }
}
