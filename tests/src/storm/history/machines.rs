//! What each kind of event may follow, and what it changes.

use keyfence_core::event::{Event, EventKind, Replaced};
use keyfence_core::{Expiry, Incarnation, Name, Token};

use super::{Checker, Claim, Machine, Rule, Subject};

/// How far a restore lifts the incarnation of an open session, and with it that of every new one.
const RESTORED_INCARNATIONS: u64 = 1_000_000;

/// How a claim ends without its holder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ended {
    /// It lapsed, or its parent is gone.
    Lapsed,
    /// An operator's act: at any time.
    Revoked,
}

/// What the lapse of the claim that an event replaced costs a message: nothing after a kiosk's reboot.
fn lapse_cost(event: &Event) -> u16 {
    let counts = |replaced: &Replaced| replaced.expiry != Expiry::EarlierBoot;
    u16::from(event.replaced.as_ref().is_some_and(counts))
}

impl Checker {
    /// Checks one event against what came before, then takes it as it is.
    pub(super) fn replay(&mut self, seq: u64, event: &Event) {
        match event.kind {
            EventKind::ActorAcquired => self.claimed(Machine::Actor, None, seq, event),
            EventKind::HostRegistered => self.claimed(Machine::Host, None, seq, event),
            EventKind::AttemptAcquired => self.claimed(Machine::Assignment, Some(Machine::Actor), seq, event),
            EventKind::MessageClaimed => self.claimed(Machine::Message, Some(Machine::Actor), seq, event),
            EventKind::SessionClaimed => self.claimed(Machine::Session, Some(Machine::Host), seq, event),
            EventKind::TokenMinted => {
                self.handed_out(seq, event);
            }

            EventKind::ActorReleased => self.acted(Machine::Actor, None, seq, event),
            EventKind::HostReleased => self.acted(Machine::Host, None, seq, event),
            EventKind::AttemptReleased => self.acted(Machine::Assignment, Some(Machine::Actor), seq, event),
            EventKind::AttemptCompleted | EventKind::AttemptBlocked | EventKind::AttemptFailed => {
                self.acted(Machine::Assignment, Some(Machine::Actor), seq, event);
                self.ended(Machine::Assignment, seq, event);
            }
            EventKind::MessageRetried => {
                self.acted(Machine::Message, Some(Machine::Actor), seq, event);
                self.check_retries(1, seq, event);
            }
            EventKind::MessageGivenBack => {
                self.acted(Machine::Message, Some(Machine::Actor), seq, event);
                let lapsed = event.expires_at.is_some_and(|expires_at| expires_at <= event.at);
                self.check_retries(u16::from(lapsed), seq, event);
            }
            EventKind::MessageCompleted => {
                self.acted(Machine::Message, Some(Machine::Actor), seq, event);
                self.check_retries(0, seq, event);
                self.ended(Machine::Message, seq, event);
            }
            EventKind::SessionReleased => self.acted(Machine::Session, Some(Machine::Host), seq, event),
            EventKind::SessionFinished => {
                if event.expires_at.is_none_or(|expires_at| expires_at <= event.at) {
                    let expiry = event.expires_at.map_or(0, |time| time.as_ms());
                    let what = format!(
                        "session `{}` lapsed at {expiry}, finished at {}",
                        event.subject, event.at
                    );
                    self.found(Rule::LateFinish, seq, what);
                }
                self.acted(Machine::Session, Some(Machine::Host), seq, event);
                self.ended(Machine::Session, seq, event);
            }

            EventKind::ActorRevoked => self.taken(Machine::Actor, Ended::Revoked, seq, event),
            EventKind::HostRevoked => self.taken(Machine::Host, Ended::Revoked, seq, event),
            EventKind::AttemptRevoked => self.taken(Machine::Assignment, Ended::Revoked, seq, event),
            EventKind::SessionRevoked => self.taken(Machine::Session, Ended::Revoked, seq, event),
            EventKind::MessageRevoked => {
                self.taken(Machine::Message, Ended::Revoked, seq, event);
                let expiry = event.replaced.as_ref().and_then(|replaced| replaced.expiry.time());
                let lapsed = expiry.is_some_and(|expiry| expiry <= event.at);
                self.check_retries(u16::from(lapsed), seq, event);
            }
            EventKind::MessageLapsed => {
                self.taken(Machine::Message, Ended::Lapsed, seq, event);
                self.check_retries(lapse_cost(event), seq, event);
            }
            EventKind::AttemptWorkerLost => {
                self.taken(Machine::Assignment, Ended::Lapsed, seq, event);
                self.ended(Machine::Assignment, seq, event);
            }
            EventKind::MessageDead => {
                match (&event.holder, &event.replaced) {
                    (Some(_), _) => self.acted(Machine::Message, Some(Machine::Actor), seq, event),
                    (None, Some(_)) => {
                        self.taken(Machine::Message, Ended::Lapsed, seq, event);
                        self.check_exhausted(seq, event);
                    }
                    (None, None) => self.dead_lettered_new(seq, event),
                }
                self.check_retries(0, seq, event);
                self.ended(Machine::Message, seq, event);
            }

            EventKind::AssignmentCreated => self.created(Machine::Assignment, seq, event),
            EventKind::MessageSent | EventKind::MessageRedriven => self.created(Machine::Message, seq, event),
            EventKind::GateRaised | EventKind::GateRebound => {}
            EventKind::LedgerPruned => self.incarnation_floor = self.incarnation_floor.max(event.incarnation),
            EventKind::LedgerRestored => self.restored(event),
        }
    }

    /// H3, H4 for a token that was handed out now.
    fn handed_out(&mut self, seq: u64, event: &Event) -> Option<Token> {
        let Some(token) = event.token else {
            self.found(Rule::Malformed, seq, format!("`{}` without a token", event.kind));
            return None;
        };
        self.counts.tokens += 1;
        if !self.tokens.insert(token) {
            let what = format!("token {token} was handed out before, now for `{}`", event.subject);
            self.found(Rule::TokenTwice, seq, what);
        } else if let Some(last) = self.last_token
            && token <= last
        {
            self.found(Rule::TokenOrder, seq, format!("token {token} after token {last}"));
        }
        self.last_token = self.last_token.max(Some(token));
        Some(token)
    }

    fn claimed(&mut self, machine: Machine, parent: Option<Machine>, seq: u64, event: &Event) {
        let Some(token) = self.handed_out(seq, event) else {
            return;
        };
        let (Some(holder), Some(expires_at)) = (event.holder.clone(), event.expires_at) else {
            self.found(
                Rule::Malformed,
                seq,
                format!("`{}` without holder or expiry", event.kind),
            );
            return;
        };
        if let Some(process) = holder.process {
            *self.claims.entry(process).or_default() += 1;
        }
        self.check_exists(machine, seq, event);
        self.check_open(machine, seq, event);
        if event.replaced.is_some() {
            self.counts.takeovers += 1;
        }
        self.check_replaced(machine, Ended::Lapsed, seq, event);
        if let Some(parent) = parent {
            self.check_parent(machine, parent, seq, event);
        }
        match machine {
            Machine::Assignment => self.check_attempt_is_new(seq, event),
            Machine::Message => self.check_retries(lapse_cost(event), seq, event),
            Machine::Session => self.check_incarnation(seq, event),
            Machine::Actor | Machine::Host => {}
        }
        self.subject(machine, &event.subject).claim = Some(Claim {
            holder,
            token,
            parent: event.parent_token,
            expires_at,
            attempt: event.attempt,
            incarnation: event.incarnation,
        });
    }

    /// A holder's own act: it ends the claim.
    fn acted(&mut self, machine: Machine, parent: Option<Machine>, seq: u64, event: &Event) {
        self.check_open(machine, seq, event);
        let claim = self.subject(machine, &event.subject).claim.take();
        let current = claim.as_ref().is_some_and(|claim| {
            Some(claim.token) == event.token
                && Some(&claim.holder) == event.holder.as_ref()
                && claim.attempt == event.attempt
                && claim.incarnation == event.incarnation
                && claim.parent == event.parent_token
        });
        if !current {
            let token = event.token.map_or(0, Token::get);
            let latest = claim
                .as_ref()
                .map_or("none".to_owned(), |claim| claim.token.to_string());
            let what = format!(
                "`{}` of `{}` under token {token}; its open claim: {latest}",
                event.kind, event.subject
            );
            self.found(Rule::Superseded, seq, what);
        }
        if let (Some(claim), Some(expires_at)) = (&claim, event.expires_at)
            && current
            && expires_at < claim.expires_at
        {
            let what = format!("token {}: {} became {expires_at}", claim.token, claim.expires_at);
            self.found(Rule::Shortened, seq, what);
        }
        if let Some(parent) = parent {
            self.check_parent(machine, parent, seq, event);
        }
    }

    /// A claim that somebody else ends: a sweep, a supervisor, an operator.
    fn taken(&mut self, machine: Machine, ended: Ended, seq: u64, event: &Event) {
        self.check_open(machine, seq, event);
        if event.replaced.is_none() {
            self.found(Rule::Malformed, seq, format!("`{}` names no claim", event.kind));
        }
        self.check_replaced(machine, ended, seq, event);
        self.subject(machine, &event.subject).claim = None;
    }

    /// H11 for a message that a lapse ended.
    fn check_exhausted(&mut self, seq: u64, event: &Event) {
        let subject = self.subject(Machine::Message, &event.subject);
        let (used, budget) = (subject.retries, subject.retries_max);
        if used < budget {
            let what = format!(
                "message `{}` lapsed to DEAD with {used} of {budget} retries",
                event.subject
            );
            self.found(Rule::Budget, seq, what);
        }
    }

    fn dead_lettered_new(&mut self, seq: u64, event: &Event) {
        self.check_open(Machine::Message, seq, event);
        if let Some(claim) = self.subject(Machine::Message, &event.subject).claim.take() {
            let what = format!("message `{}` is claimed under token {}", event.subject, claim.token);
            self.found(Rule::Replaced, seq, what);
        }
    }

    fn created(&mut self, machine: Machine, seq: u64, event: &Event) {
        if self.subjects.contains_key(&(machine, event.subject.clone())) {
            self.found(Rule::Creation, seq, format!("`{}` exists already", event.subject));
            return;
        }
        let mut retries_max = (self.retries_max)(&event.subject);
        if event.kind == EventKind::MessageRedriven {
            let dead = event
                .refers_to
                .as_ref()
                .map(|dead| self.subject(Machine::Message, dead));
            let allowed = dead.is_some_and(|dead| {
                retries_max = dead.retries_max;
                dead.ended == Some(EventKind::MessageDead) && !std::mem::replace(&mut dead.redriven, true)
            });
            if !allowed {
                let what = format!(
                    "`{}` was made from a message that is not DEAD, or once more",
                    event.subject
                );
                self.found(Rule::Creation, seq, what);
            }
        }
        if machine == Machine::Message {
            self.counts.sent += 1;
        }
        let owner = match machine {
            Machine::Assignment => event.holder.as_ref().map(|holder| holder.name.clone()),
            Machine::Actor | Machine::Message | Machine::Host | Machine::Session => None,
        };
        *self.subject(machine, &event.subject) = Subject {
            retries_max,
            owner,
            ..Subject::default()
        };
    }

    fn ended(&mut self, machine: Machine, seq: u64, event: &Event) {
        let subject = self.subject(machine, &event.subject);
        subject.claim = None;
        if subject.ended.is_some() {
            return; // Found by `check_open`.
        }
        subject.ended = Some(event.kind);
        match machine {
            Machine::Message if event.kind == EventKind::MessageDead => self.counts.dead += 1,
            Machine::Message => self.counts.done += 1,
            Machine::Assignment => self.counts.assignments += 1,
            Machine::Session => self.counts.sessions += 1,
            Machine::Actor | Machine::Host => {
                self.found(Rule::Malformed, seq, format!("`{}` ends nothing", event.kind));
            }
        }
    }

    /// A restore voids every claim, at no cost to any budget.
    fn restored(&mut self, event: &Event) {
        self.last_token = self.last_token.max(event.token);
        let lifted = |incarnation: Incarnation| incarnation.advanced(RESTORED_INCARNATIONS);
        for subject in self.subjects.values_mut() {
            subject.claim = None;
            if subject.ended.is_none() {
                subject.incarnation = subject.incarnation.and_then(lifted);
            }
        }
    }

    /// H10.
    fn check_open(&mut self, machine: Machine, seq: u64, event: &Event) {
        if let Some(ended) = self.subject(machine, &event.subject).ended {
            let what = format!("`{}` of `{}`, which ended by `{ended}`", event.kind, event.subject);
            self.found(Rule::AfterTheEnd, seq, what);
        }
    }

    /// H15.
    fn check_exists(&mut self, machine: Machine, seq: u64, event: &Event) {
        match machine {
            Machine::Actor | Machine::Host | Machine::Session => {}
            Machine::Assignment | Machine::Message => {
                if !self.subjects.contains_key(&(machine, event.subject.clone())) {
                    let what = format!("`{}` of `{}`, which was never created", event.kind, event.subject);
                    self.found(Rule::Creation, seq, what);
                }
            }
        }
    }

    /// H6, H7, H16.
    fn check_replaced(&mut self, machine: Machine, ended: Ended, seq: u64, event: &Event) {
        let claim = self.subject(machine, &event.subject).claim.clone();
        let (claim, replaced) = match (claim, &event.replaced) {
            (None, None) => return,
            (Some(claim), Some(replaced)) if claim.token == replaced.token && claim.holder == replaced.holder => {
                (claim, replaced)
            }
            (claim, replaced) => {
                let text = |token: Option<Token>| token.map_or("no claim".to_owned(), |token| format!("token {token}"));
                let what = format!(
                    "`{}` of `{}` replaced {}; its open claim: {}",
                    event.kind,
                    event.subject,
                    text(replaced.as_ref().map(|replaced| replaced.token)),
                    text(claim.map(|claim| claim.token)),
                );
                self.found(Rule::Replaced, seq, what);
                return;
            }
        };
        let expiry = replaced.expiry.time();
        if let Some(expiry) = expiry
            && expiry < claim.expires_at
        {
            let what = format!("token {}: {} became {expiry}", claim.token, claim.expires_at);
            self.found(Rule::Shortened, seq, what);
        }
        let orphaned = match (machine, claim.parent) {
            (Machine::Assignment, Some(parent)) => !self.carries(Machine::Actor, &claim.holder.name, parent),
            (Machine::Session, Some(parent)) => !self.host_can_be_live(&claim.holder.name, parent, event),
            (Machine::Actor | Machine::Host | Machine::Message, _) | (Machine::Assignment | Machine::Session, None) => {
                false
            }
        };
        match ended {
            Ended::Revoked => {}
            Ended::Lapsed => {
                if expiry.is_some_and(|expiry| expiry > event.at) && !orphaned {
                    let expiry = expiry.map_or(0, |expiry| expiry.as_ms());
                    let what = format!(
                        "`{}` of `{}` at {} replaced token {}, live until {expiry}",
                        event.kind, event.subject, event.at, claim.token
                    );
                    self.found(Rule::TooEarly, seq, what);
                }
            }
        }
    }

    /// Whether the host's claim carries `token` and was live at the event even if nobody renewed it.
    fn host_can_be_live(&self, host: &Name, token: Token, event: &Event) -> bool {
        self.subjects
            .get(&(Machine::Host, host.clone()))
            .and_then(|subject| subject.claim.as_ref())
            .is_some_and(|claim| claim.token == token && claim.expires_at > event.at)
    }

    /// H9. The parent is an actor's or a host's lease, named by the holder of the claim.
    fn check_parent(&mut self, machine: Machine, parent: Machine, seq: u64, event: &Event) {
        let Some(holder) = event.holder.clone() else {
            self.found(Rule::Malformed, seq, format!("`{}` without a holder", event.kind));
            return;
        };
        let Some(token) = event.parent_token else {
            // Only a message can be claimed without a lease.
            if machine != Machine::Message {
                self.found(Rule::Malformed, seq, format!("`{}` without a parent", event.kind));
            }
            return;
        };
        let owned = match (machine, &self.subject(machine, &event.subject).owner) {
            (Machine::Assignment, Some(owner)) => *owner == holder.name,
            (Machine::Actor | Machine::Message | Machine::Host | Machine::Session, _) | (Machine::Assignment, None) => {
                true
            }
        };
        let carried = self
            .subjects
            .get(&(parent, holder.name.clone()))
            .and_then(|subject| subject.claim.as_ref())
            .is_some_and(|claim| claim.token == token && claim.holder.process == holder.process);
        if !carried || !owned {
            let what = format!(
                "`{}` of `{}` descends from token {token}, which `{}` does not carry",
                event.kind, event.subject, holder.name
            );
            self.found(Rule::Parent, seq, what);
        }
    }

    /// H13.
    fn check_attempt_is_new(&mut self, seq: u64, event: &Event) {
        match event.attempt {
            Some(attempt) if self.attempts.insert(attempt) => {}
            Some(attempt) => self.found(Rule::AttemptTwice, seq, format!("attempt {attempt}")),
            None => self.found(Rule::Malformed, seq, format!("`{}` without an attempt", event.kind)),
        }
    }

    /// H12.
    fn check_incarnation(&mut self, seq: u64, event: &Event) {
        let floor = self.incarnation_floor;
        let subject = self.subject(Machine::Session, &event.subject);
        let before = subject.incarnation;
        let right = match (event.incarnation, before.or(floor)) {
            (Some(now), Some(before)) => now > before,
            (Some(now), None) => now == Incarnation::FIRST,
            (None, _) => false,
        };
        subject.incarnation = event.incarnation.max(before);
        if !right {
            let number = |incarnation: Option<Incarnation>| incarnation.map_or(0, Incarnation::get);
            let (now, before) = (number(event.incarnation), number(before));
            let what = format!("session `{}`: {now} after {before}", event.subject);
            self.found(Rule::Incarnation, seq, what);
        }
    }

    /// H11.
    fn check_retries(&mut self, more: u16, seq: u64, event: &Event) {
        let subject = self.subject(Machine::Message, &event.subject);
        let (before, max) = (subject.retries, subject.retries_max);
        let Some(after) = event.retries else {
            self.found(Rule::Malformed, seq, format!("`{}` without retries", event.kind));
            return;
        };
        subject.retries = after;
        if after != before + more || after > max {
            let what = format!(
                "`{}` of `{}`: {before} retries became {after}, {} is right, {max} is the budget",
                event.kind,
                event.subject,
                before + more
            );
            self.found(Rule::Budget, seq, what);
        }
    }
}
