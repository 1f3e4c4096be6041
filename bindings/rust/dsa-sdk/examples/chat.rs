//! chat.rs: a conversation on the terminal, or one question: chat MODEL ["question"].
//!
//! "/image PATH" shows a picture with the next question. Ctrl-C stops the answer and keeps what was said; a second one
//! ends the program. Exit codes: 0 answered, 1 failed, 2 wrong arguments, 130 stopped.
use dsa_sdk::{Error, Event, Image, Prompt, Role, Runtime, Session, Stop};
use std::io::Write;
use std::sync::atomic::{AtomicI32, Ordering::SeqCst};

// The code that Ctrl-C ends the program with. Negative: it stops the answer first.
static ON_INTERRUPT: AtomicI32 = AtomicI32::new(0);

extern "C" {
    fn signal(number: i32, handler: extern "C" fn(i32)) -> usize;
    fn _exit(code: i32) -> !;
}

extern "C" fn interrupted(_: i32) {
    let code = ON_INTERRUPT.swap(130, SeqCst);
    if code >= 0 {
        unsafe { _exit(code) }
    }
}

fn ask(chat: &mut Session, prompt: &Prompt) -> Result<i32, Error> {
    ON_INTERRUPT.store(-1, SeqCst);
    let mut run = chat.run(prompt)?;
    while let Some(event) = run.next() {
        match event? {
            Event::Text { text, .. } => print!("{text}"),
            Event::Reasoning { text, .. } => eprint!("{text}"), // beside the answer
            _ => {}
        }
        let _ = std::io::stdout().flush();
        if ON_INTERRUPT.load(SeqCst) == 130 {
            run.cancel(Stop::Keep)?;
        }
    }
    println!();
    Ok(ON_INTERRUPT.swap(0, SeqCst).max(0))
}

fn converse(model: &str, question: Option<&String>) -> Result<i32, Error> {
    let runtime = Runtime::new()?;
    let mut chat = runtime.load(model)?.session().build()?;
    let mut prompt = Prompt::new(&runtime)?.message(Role::User)?;
    if let Some(question) = question {
        return ask(&mut chat, &prompt.text(question)?);
    }
    eprint!("> ");
    for line in std::io::stdin().lines().map_while(Result::ok) {
        if let Some(path) = line.strip_prefix("/image ") {
            match Image::open(&runtime, path) {
                Ok(image) => prompt = prompt.image(&image)?,
                Err(error) => eprintln!("{:?}: {error}", error.kind()),
            }
        } else if !line.is_empty() {
            ask(&mut chat, &prompt.text(&line)?)?;
            prompt = Prompt::new(&runtime)?.message(Role::User)?;
        }
        eprint!("> ");
    }
    Ok(0)
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if !matches!(arguments.len(), 1 | 2) {
        eprintln!("usage: chat MODEL [\"question\"]");
        std::process::exit(2);
    }
    unsafe { signal(2, interrupted) };
    let code = converse(&arguments[0], arguments.get(1));
    std::process::exit(code.unwrap_or_else(|error| {
        eprintln!("{:?}: {error}", error.kind());
        1
    }))
}
