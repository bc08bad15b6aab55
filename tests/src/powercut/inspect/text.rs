//! The story as text for a terminal.

use std::fmt::{self, Display, Formatter};

use super::{Counts, FrameStory, PageStory, Role, Story, Verdict};

impl Display for Story {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{}: {} pages of {} bytes, units of {} bytes",
            self.geometry,
            self.pages.len(),
            self.page_bytes,
            self.unit_bytes
        )?;
        writeln!(f, "{}\n", self.verdict)?;
        for page in &self.pages {
            writeln!(f, "{page}")?;
        }
        writeln!(
            f,
            "\neach frame: offset, number, kind, its records as key=bytes; * is the newest of its key"
        )?;
        let mut page = None;
        for frame in &self.frames {
            if page != Some(frame.page) {
                page = Some(frame.page);
                writeln!(f, "\nframes in page {}", frame.page)?;
            }
            writeln!(f, "{frame}")?;
        }
        if self.findings.is_empty() {
            return writeln!(f, "\nnothing was torn, nothing is missing");
        }
        writeln!(f, "\nfindings")?;
        for finding in &self.findings {
            match finding.offset {
                Some(offset) => writeln!(f, "  {offset:#08x}  {}", finding.text)?,
                None => writeln!(f, "  {:8}  {}", "", finding.text)?,
            }
        }
        Ok(())
    }
}

impl Display for Verdict {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sound {
                boot,
                sequence,
                limit,
                chain,
                instance,
                repaired,
            } => write!(
                f,
                "sound: ledger {instance}, boot {boot}, frame {sequence}, no token above {limit}, chain {chain:08x}, \
                 {repaired} frames put right"
            ),
            Self::Refused { why, page, unit } => {
                write!(f, "REFUSED by a mount: {why}")?;
                match (page, unit) {
                    (Some(page), Some(unit)) => write!(f, " at page {page}, unit {unit}"),
                    (Some(_) | None, _) => Ok(()),
                }
            }
        }
    }
}

impl Display for PageStory {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let role = match self.role {
            Role::Live => "live",
            Role::Prepared => "prepared",
            Role::Retired => "retired",
            Role::Headless => "no header",
        };
        write!(f, "page {:2}  {role:9}", self.page)?;
        if let (Some(generation), Some(erases)) = (self.generation, self.erases) {
            write!(f, "  generation {generation:4}  erased {erases:4} times")?;
        }
        write!(f, "  {:3} frames, {} units free", self.frames, self.blank_units)
    }
}

impl Display for FrameStory {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let counts = match self.counts {
            Counts::Committed => "",
            Counts::RolledForward => "  rolled forward",
            Counts::Dropped => "  DROPPED",
            Counts::Retired => "  retired",
        };
        let number = self.sequence.map_or_else(|| "?".to_owned(), |n| n.to_string());
        write!(f, "  {:#08x}  #{number:<7} {:8}", self.offset, self.kind)?;
        if let Some(boot) = self.boot {
            write!(f, " boot {boot}")?;
        }
        if let Some(limit) = self.limit {
            write!(f, " limit {limit}")?;
        }
        for (key, len) in &self.records {
            let live = if self.live.contains(key) { "*" } else { "" };
            match len {
                0 => write!(f, " {key}=deleted")?,
                len => write!(f, " {key}{live}={len}B")?,
            }
        }
        if self.checkpoint {
            write!(f, " checkpoint")?;
        }
        f.write_str(counts)
    }
}
