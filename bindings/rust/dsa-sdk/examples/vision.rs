//! vision.rs: one question about a picture: vision MODEL PICTURE "question".
//!
//! Exit codes: 0 answered, 1 failed, 2 wrong arguments.
use dsa_sdk::{Error, Event, Image, Prompt, Role, Runtime};
use std::io::Write;

fn answer(model: &str, picture: &str, question: &str) -> Result<(), Error> {
    let runtime = Runtime::new()?;
    let image = Image::open(&runtime, picture)?;
    let prompt = Prompt::new(&runtime)?.message(Role::User)?.image(&image)?.text(question)?;
    let mut chat = runtime.load(model)?.session().build()?;
    for event in chat.run(&prompt)? {
        if let Event::Text { text, .. } = event? {
            print!("{text}");
            let _ = std::io::stdout().flush();
        }
    }
    println!();
    Ok(())
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let code = match arguments.as_slice() {
        [model, picture, question] => match answer(model, picture, question) {
            Ok(()) => 0,
            Err(error) => {
                eprintln!("{:?}: {error}", error.kind());
                1
            }
        },
        _ => {
            eprintln!("usage: vision MODEL PICTURE \"question\"");
            2
        }
    };
    std::process::exit(code)
}
