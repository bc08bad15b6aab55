//! The list of clauses is about the core as it stands, and the tests that it names exist.

use std::path::Path;

use keyfence_tests::clauses::parse;
use keyfence_tests::kit::SCENARIOS;

#[test]
fn every_listed_clause_stands_in_the_core_and_names_its_test() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let list = std::fs::read_to_string(root.join("tests/clauses.txt")).unwrap();
    let clauses = parse(&list).unwrap();
    assert!(clauses.len() > 100, "only {} entries were read", clauses.len());
    for clause in &clauses {
        let text = std::fs::read_to_string(root.join(&clause.file)).unwrap();
        let deleted = clause.deleted_from(&text).unwrap();
        assert_ne!(deleted, text, "{}: nothing is deleted", clause.name);
        let in_core = clause.test.contains("::tests::");
        assert!(
            in_core || SCENARIOS.iter().any(|scenario| scenario.name == clause.test),
            "{}: no test is named {}",
            clause.name,
            clause.test
        );
    }
}
