//! The library as a contender: nothing but its public calls, as a worker would make them.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use keyfence::core::actor::{Acquire, Released};
use keyfence::core::attempt::Done;
use keyfence::core::mailbox::{ClaimNext, MessageGrant, Priority, RETRIES_MAX_DEFAULT};
use keyfence::core::{Decision, Name, ProcessId, Ttl};
use keyfence::{Completion, Delivery, Error, Ledger, NewMessage, Options};
use uuid::Uuid;

use super::queue::{BODY, CLAIM_MS, Queue, RESULT};

/// Whose messages they are.
pub const RECIPIENT: &str = "operator-course";

/// A queue on a ledger.
pub struct Keyfence {
    ledger: Option<Ledger>,
    path: PathBuf,
    acquire: Acquire,
    claim: ClaimNext,
    held: Vec<MessageGrant>,
}

/// A call's answer, where nobody else is about who could make it a refusal.
fn granted<T>(outcome: Result<Decision<T>, Error>) -> Result<T> {
    outcome?.map_err(|refusal| anyhow!("refused: {refusal:?}"))
}

fn completions(grants: &[MessageGrant]) -> Vec<Completion<'_>> {
    grants
        .iter()
        .map(|grant| Completion { grant, result: RESULT })
        .collect()
}

/// Every call of the benchmark is the first of its kind.
fn done_now(done: Done) -> Result<()> {
    match done {
        Done::Now => Ok(()),
        Done::Already => bail!("it was done before"),
    }
}

impl Keyfence {
    /// Opens the ledger, creating it when it is not there.
    ///
    /// # Errors
    /// When the library cannot.
    pub fn open(path: &Path) -> Result<Self> {
        let owner = Name::new(RECIPIENT).context("a name")?;
        let process = ProcessId::from_bytes(*Uuid::new_v4().as_bytes());
        let ttl = Ttl::from_ms(CLAIM_MS).context("a length")?;
        Ok(Self {
            ledger: Some(Ledger::open(path, Options::default())?),
            path: path.into(),
            acquire: Acquire {
                actor: owner.clone(),
                process,
                ttl,
            },
            claim: ClaimNext {
                owner,
                process: Some(process),
                lease_token: None,
                ttl,
            },
            held: Vec::new(),
        })
    }

    fn ledger(&self) -> Result<&Ledger> {
        self.ledger.as_ref().context("it could not be opened again")
    }

    fn hold(&mut self, deliveries: Vec<Delivery>) -> usize {
        let count = deliveries.len();
        self.held.extend(deliveries.into_iter().map(|delivery| {
            // As for the peers: a worker wants the body.
            std::hint::black_box(delivery.body);
            delivery.granted.grant
        }));
        count
    }

    fn message(&self) -> Result<NewMessage> {
        Ok(NewMessage {
            // What a caller takes who leaves the choice to chance.
            id: Name::new(&format!("msg_{}", Uuid::new_v4().simple())).context("a name")?,
            sender: None,
            recipient: self.claim.owner.clone(),
            subject: String::new(),
            body: BODY.into(),
            priority: Priority::default(),
            not_before: None,
            retries_max: RETRIES_MAX_DEFAULT,
        })
    }
}

impl Queue for Keyfence {
    fn send(&mut self, count: usize) -> Result<()> {
        let messages = (0..count).map(|_| self.message()).collect::<Result<Vec<_>>>()?;
        for sent in granted(self.ledger()?.call().mailbox_send_batch(&messages))? {
            done_now(granted(Ok(sent))?)?;
        }
        Ok(())
    }

    fn claim(&mut self, count: usize) -> Result<usize> {
        let deliveries = granted(self.ledger()?.call().mailbox_claim_next(&self.claim, count))?;
        Ok(self.hold(deliveries))
    }

    fn complete(&mut self) -> Result<()> {
        match self.held.as_slice() {
            [] => {}
            [grant] => {
                done_now(granted(self.ledger()?.call().mailbox_complete(grant, RESULT))?)?;
            }
            grants => {
                let completions = completions(grants);
                for done in granted(self.ledger()?.call().mailbox_complete_batch(&completions))? {
                    done_now(granted(Ok(done))?)?;
                }
            }
        }
        self.held.clear();
        Ok(())
    }

    fn complete_and_claim(&mut self, count: usize) -> Result<usize> {
        let next = match self.held.as_slice() {
            [grant] => {
                let mut call = self.ledger()?.call();
                let both = granted(call.mailbox_complete_and_next(grant, RESULT, &self.claim, count))?;
                done_now(both.done)?;
                both.next
            }
            grants => {
                let mut call = self.ledger()?.call();
                let completions = completions(grants);
                let both = granted(call.mailbox_complete_batch_and_next(&completions, &self.claim, count))?;
                for done in both.done {
                    done_now(granted(Ok(done))?)?;
                }
                both.next
            }
        };
        self.held.clear();
        Ok(self.hold(granted(Ok(next))?))
    }

    fn acquire_and_release(&mut self) -> Result<()> {
        let lease = granted(self.ledger()?.call().actor_acquire(&self.acquire))?;
        let released = granted(self.ledger()?.call().actor_release(&lease.grant))?;
        ensure!(released == Released::Now, "{released:?}");
        Ok(())
    }

    fn checkpoint(&mut self) -> Result<()> {
        // The last one to close a file empties its log.
        drop(self.ledger.take());
        self.ledger = Some(Ledger::open(&self.path, Options::default())?);
        Ok(())
    }
}
