//! The clauses of the core's predicates, each with the edit that deletes it and the fact that then no longer holds.
//!
//! `tests/clauses.txt` lists them:
//!
//! ```text
//! == core/src/lease.rs: renew: the exact process
//! !! another_process_cannot_renew_an_actor_lease
//! <<
//! what stands there, exactly once
//! >>
//! what stands there without the clause
//! ```
//!
//! `cargo run -p keyfence-tests --bin clauses` makes each edit in a copy of the core and runs the kit on it.

/// One clause.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Clause {
    /// The file it stands in, from the root of the workspace.
    pub file: String,
    /// What it says.
    pub name: String,
    /// The test that fails without it.
    pub test: String,
    /// The text that holds it.
    pub with: String,
    /// The same text without it.
    pub without: String,
}

impl Clause {
    /// The file's text without the clause.
    ///
    /// # Errors
    /// Says how often the text occurs, when that is not once.
    pub fn deleted_from(&self, text: &str) -> Result<String, String> {
        match text.matches(&self.with).count() {
            1 => Ok(text.replacen(&self.with, &self.without, 1)),
            count => Err(format!("{}: {}: its text occurs {count} times", self.file, self.name)),
        }
    }
}

/// Reads the list.
///
/// # Errors
/// Says which entry is not one.
pub fn parse(list: &str) -> Result<Vec<Clause>, String> {
    let (_, entries) = list.split_once("\n== ").ok_or("no entry")?;
    entries.split("\n== ").map(entry).collect()
}

fn entry(text: &str) -> Result<Clause, String> {
    let parts = || -> Option<Clause> {
        let (title, rest) = text.split_once("\n!! ")?;
        let (test, rest) = rest.split_once("\n<<\n")?;
        let (with, without) = rest.split_once("\n>>\n")?;
        let (file, name) = title.split_once(": ")?;
        Some(Clause {
            file: file.to_owned(),
            name: name.to_owned(),
            test: test.to_owned(),
            with: with.to_owned(),
            without: without.trim_end_matches('\n').to_owned(),
        })
    };
    parts().ok_or_else(|| format!("not an entry: {}", text.lines().next().unwrap_or_default()))
}
