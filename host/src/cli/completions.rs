//! `keyfence completions`: what a shell needs to complete the command's arguments.

use clap::Args;
use clap_complete::Shell;

use super::exit::{Answered, Status};
use super::output::Answer;
use super::{Context, command};

/// Print completions for a shell
#[derive(Debug, Args)]
#[command(after_help = "\
Write it into a folder that the shell reads and start a new shell. The folder
has to be there first (mkdir -p). zsh reads the folders of its $fpath.

Examples:
  keyfence completions bash \\
      > ~/.local/share/bash-completion/completions/keyfence
  keyfence completions fish > ~/.config/fish/completions/keyfence.fish
  keyfence completions zsh > ~/.zfunc/_keyfence
      # with `fpath+=~/.zfunc` before `compinit` in ~/.zshrc")]
pub(crate) struct Completions {
    /// The shell
    shell: Shell,
}

impl Completions {
    pub(crate) fn run(self, context: &Context) -> Answered {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut command(), "keyfence", &mut script);
        let script = String::from_utf8_lossy(&script);
        let output = context.output();
        if output.is_json() {
            let answer = Answer::new("done").with("shell", self.shell.to_string());
            output.answer(&answer.with("script", script.as_ref()))?;
        } else {
            output.text(&script)?;
        }
        Ok(Status::Done)
    }
}
