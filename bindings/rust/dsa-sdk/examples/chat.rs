//! chat.rs: a conversation on the terminal, or one question: chat MODEL ["question"].
//!
//! Ctrl-C stops the answer and keeps what was said; a second one ends the program. Exit codes: 0 answered, 1 failed,
//! 2 wrong arguments, 130 stopped.

use dsa_sdk::{Error, Event, Prompt, Runtime, Session, Stop};
use std::io::Write;
use std::process::exit;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

static ANSWERING: AtomicBool = AtomicBool::new(false);
static STOPPED: AtomicBool = AtomicBool::new(false);

extern "C" {
    fn signal(number: i32, handler: usize) -> usize;
    fn _exit(code: i32) -> !;
}

extern "C" fn on_interrupt(number: i32) {
    if !ANSWERING.load(SeqCst) {
        unsafe { _exit(0) } // at the prompt it ends the conversation
    }
    STOPPED.store(true, SeqCst);
    unsafe { signal(number, 0) }; // the next one ends the program
}

fn ask(runtime: &Runtime, chat: &mut Session, question: &str) -> Result<i32, Error> {
    STOPPED.store(false, SeqCst);
    ANSWERING.store(true, SeqCst);
    unsafe { signal(2, on_interrupt as extern "C" fn(i32) as usize) };
    let prompt = Prompt::new(runtime)?.user(question)?;
    let mut run = chat.run(&prompt)?;
    let mut thinking = false;
    while let Some(event) = run.next() {
        match event? {
            Event::Text { text, .. } if std::mem::take(&mut thinking) => {
                eprintln!();
                print!("{text}");
            }
            Event::Text { text, .. } => print!("{text}"),
            Event::Reasoning { text, .. } => {
                thinking = true;
                eprint!("{text}"); // beside the answer
            }
            _ => {}
        }
        let _ = std::io::stdout().flush();
        if STOPPED.load(SeqCst) {
            run.cancel(Stop::Keep)?;
        }
    }
    println!();
    ANSWERING.store(false, SeqCst);
    Ok(if STOPPED.load(SeqCst) { 130 } else { 0 })
}

fn converse(model: &str, question: Option<&String>) -> Result<i32, Error> {
    let runtime = Runtime::new()?;
    let mut chat = runtime.load(model)?.session().build()?;
    if let Some(question) = question {
        return ask(&runtime, &mut chat, question);
    }
    eprint!("> ");
    for line in std::io::stdin().lines().map_while(Result::ok) {
        if !line.is_empty() {
            ask(&runtime, &mut chat, &line)?;
        }
        eprint!("> ");
    }
    Ok(0)
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.is_empty() || arguments.len() > 2 {
        eprintln!("usage: chat MODEL [\"question\"]");
        exit(2);
    }
    exit(converse(&arguments[0], arguments.get(1)).unwrap_or_else(|error| {
        eprintln!("{:?}: {error}", error.kind());
        1
    }))
}
