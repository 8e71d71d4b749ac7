//! What can be wrong with MPS on a GPU.

use std::io;
use std::path::PathBuf;

use thiserror::Error;

use super::PIPES_MAX;
use crate::tool::ToolError;

/// Why MPS cannot be had on a GPU, or is not as it should be.
#[derive(Debug, Error)]
pub enum MpsError {
    /// The control program is missing, silent or refuses.
    #[error(transparent)]
    Tool(#[from] ToolError),
    /// Folders cannot be made or removed.
    #[error("{}: {source}; MPS needs this folder for its sockets", path.display())]
    Folder {
        /// The folder.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// The path leaves no room for the names of sockets.
    #[error("{}: has {} bytes, more than {PIPES_MAX}; choose a shorter state folder", path.display(), path.as_os_str().len())]
    LongPath {
        /// The pipe folder.
        path: PathBuf,
    },
    /// Something runs in the folder already.
    #[error("an MPS daemon (process {pid}) runs in {} already; adopt or clear it", folder.display())]
    Runs {
        /// Its number.
        pid: u32,
        /// The folder.
        folder: PathBuf,
    },
    /// The daemon came up but left no pid file, or has ended.
    #[error("the MPS daemon in {} has ended; its log is {}", folder.display(), log.display())]
    Gone {
        /// The folder.
        folder: PathBuf,
        /// Its log.
        log: PathBuf,
    },
    /// It answers, but not what was asked.
    #[error("the MPS daemon answers `{said}` to {asked}")]
    Odd {
        /// The question.
        asked: String,
        /// The answer.
        said: String,
    },
    /// Another one serves the GPU, and two cannot.
    #[error(
        "an MPS daemon (process {pid}) that is not hotpot's serves {gpu}; end it (`echo quit | nvidia-cuda-mps-control`), or use the GPU in another mode"
    )]
    Foreign {
        /// Its number.
        pid: u32,
        /// UUID of the GPU.
        gpu: String,
    },
    /// It cannot be ended.
    #[error("process {pid} of MPS does not end, not even by SIGKILL; the GPU needs a look")]
    Immortal {
        /// Its number.
        pid: u32,
    },
}
