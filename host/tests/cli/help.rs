//! The help of every level, against a snapshot: it is what people see first.
//!
//! `KEYFENCE_BLESS=1 cargo test -p keyfence --test cli help` writes the snapshot anew.

use std::path::Path;

use crate::support::Shop;

/// The help of a command and of all its subcommands, depth first.
fn help_of(shop: &Shop, command: &str, text: &mut String) {
    let (status, help, stderr) = shop.say(&format!("{command} --help"));
    assert_eq!((status, stderr.as_str()), (0, ""), "{command}");
    // The line of the usage is one that the parser does not break.
    let wide: Vec<&str> = help
        .lines()
        .filter(|line| line.chars().count() > 80 && !line.starts_with("Usage: "))
        .collect();
    assert!(
        wide.is_empty(),
        "`keyfence {command} --help` is wider than 80 columns: {wide:?}"
    );
    assert!(
        help.contains("Examples:\n"),
        "`keyfence {command} --help` has no examples"
    );
    text.push_str(&format!("$ keyfence{command} --help\n{help}\n"));
    let subcommands = help
        .lines()
        .skip_while(|line| *line != "Commands:")
        .skip(1)
        .take_while(|line| !line.is_empty())
        .filter(|line| line.starts_with("  ") && !line.starts_with("   "))
        .filter_map(|line| line.split_whitespace().next())
        .filter(|name| *name != "help");
    for name in subcommands {
        help_of(shop, &format!("{command} {name}"), text);
    }
}

#[test]
fn the_help_is_that_of_the_snapshot() {
    let snapshot = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cli/help.txt");
    let mut help = String::new();
    help_of(&Shop::new(), "", &mut help);
    if std::env::var_os("KEYFENCE_BLESS").is_some() {
        std::fs::write(&snapshot, &help).unwrap();
    }
    let expected = std::fs::read_to_string(&snapshot).unwrap();
    for (line, (is, was)) in help.lines().zip(expected.lines()).enumerate() {
        assert_eq!(is, was, "line {} of {}", line + 1, snapshot.display());
    }
    assert_eq!(help, expected);
}

#[test]
fn help_says_that_a_shown_token_is_no_authority() {
    let shop = Shop::new();
    for command in ["actor", "assignment", "session", "host", "mailbox"] {
        let (_, help, _) = shop.say(&format!("{command} show --help"));
        let help = help.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(help.contains("a token shown here is not authority"), "{command}");
    }
    assert!(shop.say("--help").1.contains("is not authority"));
}
