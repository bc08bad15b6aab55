//! What the records of rows refer to by number: processes and other rows.

use keyfence_core::store::Place;
use keyfence_core::{Name, ProcessId};

use super::{FlashStep, Outcomes};
use crate::store::codec::Reader;
use crate::store::for_all_bounds;
use crate::store::keys::{self, Kind};
use crate::store::rows::{PROCESS_INLINE, References};

for_all_bounds! { FlashStep<> {
    /// The processes that rows refer to by number, one bit each.
    fn processes_in_use(&mut self) -> Outcomes<u32> {
        let mut used = 0u32;
        for kind in Kind::ALL {
            for row in 0..self.slots(kind).len() {
                if !self.slots(kind).get(row).is_some_and(|slot| slot.used) {
                    continue;
                }
                let state = self.read(Self::KEYS_OF.state(kind, row), kind.place())?;
                let number = state.as_ref().and_then(|state| state.get(1)).copied();
                used |= number.filter(|number| *number < PROCESS_INLINE).map_or(0, |number| 1 << (number & 31));
            }
        }
        Ok(used)
    }
} }

for_all_bounds! { FlashStep<> as References {
    fn process_number(&mut self, process: ProcessId) -> Outcomes<Option<u8>> {
        let mut free = None;
        for number in 0..keys::PROCESSES_MAX as u8 {
            match self.read(keys::PROCESSES + number, Place::Counter)? {
                Some(known) if known == process.as_bytes()[..] => return Ok(Some(number)),
                Some(_) => {}
                None => {
                    free.get_or_insert(number);
                }
            }
        }
        if self.is_frozen {
            return Ok(None);
        }
        if free.is_none() {
            let used = self.processes_in_use()?;
            free = (0..keys::PROCESSES_MAX as u8).find(|number| used & (1 << number) == 0);
        }
        if let Some(number) = free {
            self.stage(keys::PROCESSES + number, process.as_bytes())?;
        }
        Ok(free)
    }

    fn process(&mut self, number: u8) -> Outcomes<Option<ProcessId>> {
        if usize::from(number) >= keys::PROCESSES_MAX {
            return Ok(None);
        }
        let process = self.read(keys::PROCESSES + number, Place::Counter)?;
        Ok(process.and_then(|process| process[..].try_into().ok()).map(ProcessId::from_bytes))
    }

    fn row_number(&mut self, kind: Kind, name: &Name) -> Outcomes<Option<u8>> {
        Ok(self.find(kind, name)?.map(|row| row as u8))
    }

    fn row_name(&mut self, kind: Kind, number: u8) -> Outcomes<Option<Name>> {
        if usize::from(number) >= self.slots(kind).len() {
            return Ok(None);
        }
        let fixed = self.read(Self::KEYS_OF.name(kind, number.into()), kind.place())?;
        Ok(fixed.and_then(|fixed| Reader::new(&fixed).name()))
    }

    fn ordinal(&self) -> u64 {
        self.journal.report().map_or(0, |report| report.sequence)
    }

    fn epoch(&self) -> u32 {
        self.epoch
    }
} }
