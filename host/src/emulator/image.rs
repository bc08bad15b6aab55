//! The program as it was linked: a 32-bit little-endian ELF file.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// Why a file is not the program of a kiosk.
#[derive(Debug, thiserror::Error)]
pub enum ImageError {
    /// It cannot be read.
    #[error("{path}")]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// It is not a program for this kind of processor.
    #[error("{path} is not a 32-bit ELF program: {why}")]
    Malformed {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: &'static str,
    },
    /// It lacks a symbol.
    #[error("{path} has no symbol `{symbol}`: it is not the program of a kiosk")]
    NoSymbol {
        /// The file.
        path: PathBuf,
        /// The symbol.
        symbol: &'static str,
    },
}

/// A program, with where things lie.
#[derive(Clone, Debug)]
pub struct Image {
    path: PathBuf,
    elf: Vec<u8>,
    segments: Vec<(u32, Vec<u8>)>,
    symbols: BTreeMap<String, u32>,
}

impl Image {
    /// Reads a program.
    ///
    /// # Errors
    ///
    /// [`ImageError`], when it is no ELF file of the right kind.
    pub fn read(path: &Path) -> Result<Self, ImageError> {
        let elf = std::fs::read(path).map_err(|source| ImageError::Unreadable {
            path: path.to_owned(),
            source,
        })?;
        let malformed = |why| ImageError::Malformed {
            path: path.to_owned(),
            why,
        };
        let (segments, symbols) = parse(&elf).map_err(malformed)?;
        Ok(Self {
            path: path.to_owned(),
            elf,
            segments,
            symbols,
        })
    }

    /// The file it was read from.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The file's bytes.
    #[must_use]
    pub fn elf(&self) -> &[u8] {
        &self.elf
    }

    /// What is programmed into the flash: addresses and bytes.
    #[must_use]
    pub fn segments(&self) -> &[(u32, Vec<u8>)] {
        &self.segments
    }

    /// Bytes of flash from the first to the last that the program takes.
    #[must_use]
    pub fn size_bytes(&self) -> u32 {
        let ends = self.segments.iter().map(|(at, bytes)| at + bytes.len() as u32);
        ends.max().unwrap_or(0)
    }

    /// The address, or value, of a symbol.
    ///
    /// # Errors
    ///
    /// [`ImageError::NoSymbol`].
    pub fn symbol(&self, symbol: &'static str) -> Result<u32, ImageError> {
        self.symbols.get(symbol).copied().ok_or_else(|| ImageError::NoSymbol {
            path: self.path.clone(),
            symbol,
        })
    }

    /// The journal's range of the flash.
    ///
    /// # Errors
    ///
    /// [`ImageError::NoSymbol`].
    pub fn journal(&self) -> Result<Range<u32>, ImageError> {
        Ok(self.symbol("__journal_start")?..self.symbol("__journal_end")?)
    }

    /// The range of the flash that says who the kiosk is.
    ///
    /// # Errors
    ///
    /// [`ImageError::NoSymbol`].
    pub fn identity(&self) -> Result<Range<u32>, ImageError> {
        Ok(self.symbol("__identity_start")?..self.symbol("__identity_end")?)
    }
}

type Parsed = (Vec<(u32, Vec<u8>)>, BTreeMap<String, u32>);

fn parse(elf: &[u8]) -> Result<Parsed, &'static str> {
    const CUT_OFF: &str = "it is cut off";
    let slice = |at: usize, len: usize| elf.get(at..at.checked_add(len)?);
    let half = |at| Some(u16::from_le_bytes(slice(at, 2)?.try_into().ok()?).into());
    let word = |at| Some(u32::from_le_bytes(slice(at, 4)?.try_into().ok()?));
    let offset = |at| word(at).map(|word| word as usize);
    if slice(0, 6) != Some(b"\x7fELF\x01\x01") {
        return Err("it has another kind of header");
    }
    let segments = || {
        let (table, size, count): (usize, usize, usize) = (offset(28)?, half(42)?, half(44)?);
        let mut segments = Vec::new();
        for header in (0..count).map(|index| table + index * size) {
            let is_loaded = word(header)? == 1;
            let (from, len) = (offset(header + 4)?, offset(header + 16)?);
            if is_loaded && len > 0 {
                segments.push((word(header + 12)?, slice(from, len)?.to_vec()));
            }
        }
        Some(segments)
    };
    let symbols = || {
        let (table, size, count): (usize, usize, usize) = (offset(32)?, half(46)?, half(48)?);
        let mut symbols = BTreeMap::new();
        for header in (0..count).map(|index| table + index * size) {
            if word(header + 4)? != 2 {
                continue;
            }
            let (from, len) = (offset(header + 16)?, offset(header + 20)?);
            let names = offset(table + offset(header + 24)? * size + 16)?;
            for symbol in (from..from.checked_add(len)?).step_by(16) {
                let name = elf.get(names.checked_add(offset(symbol)?)?..)?;
                let name = name.split(|byte| *byte == 0).next()?;
                let name = String::from_utf8_lossy(name).into_owned();
                symbols.insert(name, word(symbol + 4)?);
            }
        }
        Some(symbols)
    };
    Ok((segments().ok_or(CUT_OFF)?, symbols().ok_or(CUT_OFF)?))
}
