//! What a worker was told, written down after each answer, and what it is about to ask under a request id.
//!
//! One file a slot: the process that takes over a killed worker's slot goes on writing, and finds there the question whose
//! answer was lost. Every record is one `write`, so that a kill leaves a whole record or a torn last one. A record ends
//! with ` .`, and what does not is torn and ignored.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::path::Path;

use keyfence_core::event::EventKind;
use keyfence_core::{Name, ProcessId, Token};

use super::history::Act;

const END: &str = " .";

/// A question under a request id: one claim for a process identity of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Question {
    pub(crate) request: Name,
    pub(crate) process: ProcessId,
}

/// One record.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Record {
    Told(Act),
    Asked(Question),
    Answered(Name),
    Counted(String),
}

/// A journal that is being written.
#[derive(Debug)]
pub(crate) struct Journal {
    file: File,
}

impl Journal {
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let mut file = OpenOptions::new().create(true).append(true).open(path)?;
        // Ends a torn record.
        file.write_all(b"\n")?;
        Ok(Self { file })
    }

    fn write(&mut self, record: &str) -> io::Result<()> {
        self.file.write_all(format!("{record}{END}\n").as_bytes())
    }

    /// The answer said that this happened.
    pub(crate) fn told(&mut self, kind: EventKind, subject: &Name, token: Token) -> io::Result<()> {
        self.write(&format!("told {kind} {subject} {token}"))
    }

    /// This is about to be asked.
    pub(crate) fn asked(&mut self, question: &Question) -> io::Result<()> {
        self.write(&format!("asked {} {}", question.request, question.process))
    }

    /// The question was answered.
    pub(crate) fn answered(&mut self, request: &Name) -> io::Result<()> {
        self.write(&format!("answered {request}"))
    }

    /// Something worth counting happened.
    pub(crate) fn counted(&mut self, what: &str) -> io::Result<()> {
        self.write(&format!("counted {what}"))
    }
}

/// All that the journals of a storm say.
#[derive(Clone, Debug, Default)]
pub(crate) struct Told {
    pub(crate) acts: Vec<Act>,
    pub(crate) questions: Vec<Question>,
    pub(crate) counts: BTreeMap<String, u64>,
    /// The last question, when its answer is not in the journal.
    pub(crate) open: Option<Question>,
}

impl Told {
    /// Reads one journal and adds what it says. A journal that is not there says nothing.
    pub(crate) fn read(&mut self, path: &Path) -> io::Result<()> {
        let text = match std::fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(error),
        };
        self.open = None;
        for line in text.lines() {
            match parse(line) {
                None => {}
                Some(Record::Told(act)) => self.acts.push(act),
                Some(Record::Asked(question)) => {
                    self.open = Some(question.clone());
                    self.questions.push(question);
                }
                Some(Record::Answered(request)) => self.open = self.open.take().filter(|open| open.request != request),
                Some(Record::Counted(what)) => *self.counts.entry(what).or_default() += 1,
            }
        }
        Ok(())
    }
}

fn parse(line: &str) -> Option<Record> {
    let words: Vec<&str> = line.strip_suffix(END)?.split(' ').collect();
    match words.as_slice() {
        ["told", kind, subject, token] => Some(Record::Told(Act {
            kind: EventKind::from_name(kind)?,
            subject: Name::new(subject).ok()?,
            token: Token::presented(token.parse().ok()?)?,
        })),
        ["asked", request, process] => Some(Record::Asked(Question {
            request: Name::new(request).ok()?,
            process: process.parse().ok()?,
        })),
        ["answered", request] => Some(Record::Answered(Name::new(request).ok()?)),
        ["counted", what] => Some(Record::Counted((*what).to_owned())),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_torn_record_is_ignored_and_a_lost_answer_is_found() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("journal");
        let question = |number: u8| Question {
            request: Name::new(&format!("r-{number}")).unwrap(),
            process: ProcessId::from_bytes([number; 16]),
        };
        let (subject, token) = (Name::new("m-1").unwrap(), Token::presented(417).unwrap());
        let mut journal = Journal::open(&path).unwrap();
        journal.asked(&question(1)).unwrap();
        journal.told(EventKind::MessageClaimed, &subject, token).unwrap();
        journal.answered(&question(1).request).unwrap();
        journal.counted("busy").unwrap();
        journal.asked(&question(2)).unwrap();
        // Cut within the token: what is left reads like another one.
        journal.file.write_all(b"told message.claimed m-1 41").unwrap();
        let mut journal = Journal::open(&path).unwrap();
        journal.counted("busy").unwrap();

        let mut told = Told::default();
        told.read(&path).unwrap();
        told.read(&folder.path().join("missing")).unwrap();
        let act = Act {
            kind: EventKind::MessageClaimed,
            subject,
            token,
        };
        assert_eq!(told.acts, [act]);
        assert_eq!(told.questions, [question(1), question(2)]);
        assert_eq!(told.counts, BTreeMap::from([("busy".to_owned(), 2)]));
        told.read(&path).unwrap();
        assert_eq!(told.open, Some(question(2)));
    }
}
