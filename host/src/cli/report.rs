//! `--report FILE`: the answer of a command whose standard output is a program's own.
//!
//! * **P1.** Nothing is written over but a report of the same command, or an empty file.
//! * **P2.** The file is the old one or the whole new one, readable and writable by its owner only.
//! * **P3.** Whether it can be written is found out before anything is taken.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use serde_json::Value;
use tempfile::NamedTempFile;

use super::Context;
use super::exit::{Answered, Failure, Status};
use super::output::Answer;

/// The key that says which command a report is of.
const MARK: &str = "keyfence_report";

/// The longest file that is taken for a report, in bytes: a report holds a result.
const FILE_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// Where the answer goes.
pub(crate) struct ReportFile(Option<Target>);

struct Target {
    path: PathBuf,
    /// Which command's report it is.
    kind: &'static str,
}

impl ReportFile {
    /// Looks at the place and tries whether a draft can be made there (P3). It is taken away again: a program may run for
    /// hours, and a killed call takes nothing away. `own` are files that the call itself works on.
    pub(crate) fn open(path: Option<&Path>, kind: &'static str, own: &[&Path]) -> Result<Self, Failure> {
        let Some(path) = path else {
            return Ok(Self(None));
        };
        if own.iter().any(|own| keyfence::is_own_file(own, path)) {
            return Err(Failure::Usage(format!(
                "the report must not be {}: that is a file of keyfence's own",
                path.display()
            )));
        }
        if let Some(why) = obstacle(path, kind).map_err(|error| failed(path, error))? {
            return Err(Failure::Usage(why));
        }
        drop(draft_of(path)?);
        Ok(Self(Some(Target {
            path: path.to_owned(),
            kind,
        })))
    }

    /// Writes the answer to the file, else to standard output with `--json`. As text only what went wrong is said, on
    /// standard error: the program has spoken for itself.
    pub(crate) fn conclude(self, context: &Context, answered: Result<(Answer, Status), Failure>) -> Answered {
        let (answer, status) = match answered {
            Ok(answered) => answered,
            Err(failure) => context.describe(failure),
        };
        let Some(target) = self.0 else {
            if status == Status::Done {
                // No program ran: the output is free for the answer.
                context.output().answer(&answer)?;
            } else if context.output().is_json() && matches!(status, Status::Program(_) | Status::Refused) {
                context.output().answer_after_a_program(&answer)?;
            } else if context.output().is_json() || status != Status::Program(0) {
                context.output().no_answer(&answer)?;
            }
            return Ok(status);
        };
        target.write(answer.clone())?;
        if !context.output().is_json() && !matches!(status, Status::Program(_)) {
            context.output().no_answer(&answer)?;
        }
        Ok(status)
    }
}

impl Target {
    /// Puts the whole report in its place (P2), unless something else is there by now (P1).
    fn write(self, answer: Answer) -> Result<(), Failure> {
        let report = answer.with(MARK, self.kind).into_value();
        let mut draft = draft_of(&self.path)?;
        writeln!(draft, "{report}")
            .and_then(|()| draft.as_file().sync_all())
            .map_err(|error| failed(&self.path, error))?;
        if let Some(why) = obstacle(&self.path, self.kind).map_err(|error| failed(&self.path, error))? {
            return Err(Failure::System(anyhow::Error::msg(why)));
        }
        draft
            .persist(&self.path)
            .map_err(|error| failed(&self.path, error.error))?;
        Ok(())
    }
}

/// A file beside the report's place, readable and writable by its owner only; taken away when it is dropped.
fn draft_of(path: &Path) -> Result<NamedTempFile, Failure> {
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        Some(_) | None => Path::new("."),
    };
    tempfile::Builder::new()
        .prefix(".keyfence-report-")
        .tempfile_in(folder)
        .map_err(|error| failed(path, io::Error::from(error.kind())))
}

/// What is in the way of a report of this command: something else than one (P1).
fn obstacle(path: &Path, kind: &'static str) -> io::Result<Option<String>> {
    let metadata = match fs::symlink_metadata(path) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let what = if metadata.is_symlink() {
        "a symbolic link".to_owned()
    } else if !metadata.is_file() {
        "no regular file".to_owned()
    } else if metadata.nlink() > 1 {
        "a file of more than one name".to_owned()
    } else if metadata.len() == 0 || is_report(path, kind)? {
        return Ok(None);
    } else {
        format!("no report of `keyfence {kind}`")
    };
    Ok(Some(format!(
        "the report would write over {}, which is {what}: name another file, or remove this one",
        path.display()
    )))
}

fn is_report(path: &Path, kind: &'static str) -> io::Result<bool> {
    let mut text = Vec::new();
    File::open(path)?.take(FILE_BYTES_MAX).read_to_end(&mut text)?;
    let report = serde_json::from_slice::<Value>(&text).unwrap_or_default();
    Ok(report.get(MARK).and_then(Value::as_str) == Some(kind))
}

fn failed(path: &Path, error: io::Error) -> Failure {
    Failure::System(anyhow::Error::new(error).context(format!("cannot write the report to {}", path.display())))
}
