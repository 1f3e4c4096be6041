//! From a folder to an answer: what each type says and does.

mod common;

use common::{endless, is_text, model_folder, question, shared, FRANCE};
use dsa_sdk::{
    Channel, Effort, ErrorKind, Event, Finish, Fix, Image, ImageOptions, LogLevel, ModelState, Package,
    PixelFormat, Pixels, Prompt, RunOptions, Runtime, Sampling, Stage, Stop,
};
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex};
use std::time::Duration;

#[test]
fn events_come_in_order_and_their_text_is_the_answer() {
    let (runtime, model) = shared();
    let mut chat = model.session().build().unwrap();
    let mut run = chat.run_with(&question(&runtime, FRANCE), &RunOptions::new().seed(7)).unwrap();
    let events: Vec<Event> = run.by_ref().map(Result::unwrap).collect();
    assert!(matches!(events.first(), Some(Event::Start { .. })));
    assert!(matches!(events.get(1), Some(Event::Prefill { .. })));
    assert!(matches!(events.last(), Some(Event::Done { finish: Finish::Stop, .. })));
    let text: String = events
        .iter()
        .filter_map(|e| if let Event::Text { text, .. } = e { Some(text.as_str()) } else { None })
        .collect();
    assert_eq!(text, run.text(Channel::Answer).unwrap());
    assert!(text.contains("Paris"), "{text}");
    assert!(run.next().is_none() && run.finished());
    let result = run.result().unwrap();
    assert_eq!((result.finish, result.seed, result.failure), (Finish::Stop, 7, None));
    assert!(run.stats().unwrap().total_ms > 0.0);
}

#[test]
fn a_session_remembers_and_asks() {
    let (_, model) = shared();
    let mut chat = model.session().build().unwrap();
    assert!(chat.ask(FRANCE).unwrap().contains("Paris"));
    assert!(chat.ask("What is the capital of Japan?").unwrap().contains("Tokyo"));
    assert_eq!(chat.info().unwrap().turns, 2);
}

#[test]
fn limits_and_stop_texts() {
    let (runtime, model) = shared();
    let finish = |options: RunOptions| {
        let mut chat = model.session().build().unwrap();
        let mut run = chat.run_with(&question(&runtime, FRANCE), &options).unwrap();
        run.by_ref().for_each(drop);
        run.result().unwrap()
    };
    assert_eq!(finish(RunOptions::new().max_tokens(3)).finish, Finish::Length);
    let late = RunOptions::new().sampling(endless()).deadline(Duration::from_millis(200));
    assert_eq!(finish(late).finish, Finish::Deadline);
    let stopped = finish(RunOptions::new().sampling(Sampling::greedy()).stop("never").stop("of France"));
    assert_eq!((stopped.finish, stopped.stop_index), (Finish::StopText, 1));
}

#[test]
fn rollback_takes_everything_back_and_is_told_once() {
    let (runtime, model) = shared();
    let mut chat = model.session().build().unwrap();
    chat.ask("Hello.").unwrap();
    let before = chat.info().unwrap().num_tokens;
    let mut run =
        chat.run_with(&question(&runtime, "Story."), &RunOptions::new().sampling(endless())).unwrap();
    let mut errors = Vec::new();
    while let Some(event) = run.next() {
        match event {
            Ok(event) if is_text(&event) => run.cancel(Stop::Rollback).unwrap(),
            Ok(_) => {}
            Err(error) => errors.push(error.kind()),
        }
    }
    assert_eq!(errors, [ErrorKind::Cancelled]);
    drop(run);
    assert_eq!(chat.info().unwrap().num_tokens, before);
}

#[test]
fn polling() {
    let (runtime, model) = shared();
    let mut chat = model.session().build().unwrap();
    let mut run = chat.run(&question(&runtime, FRANCE)).unwrap();
    assert_eq!(run.result().unwrap_err().kind(), ErrorKind::State);
    let mut done = false;
    while !run.finished() {
        done = matches!(run.next_timeout(Duration::from_millis(50)).unwrap(), Some(Event::Done { .. }));
    }
    assert!(done);
    assert_eq!(run.try_next().unwrap(), None);
}

#[test]
fn prompts() {
    let (runtime, model) = shared();
    let prompt = Prompt::new(&runtime).unwrap().system("Be brief.").unwrap().user(FRANCE).unwrap();
    assert!(prompt.render(&model).unwrap().contains("Be brief."));
    let cost = prompt.measure(&model, None).unwrap();
    assert!(cost.fits && cost.num_tokens == cost.text_tokens);
    let json = r#"[{"role": "user", "content": "What is the capital of France?"}]"#;
    let mut chat = model.session().build().unwrap();
    let mut run = chat.run(&Prompt::new(&runtime).unwrap().json(json).unwrap()).unwrap();
    run.by_ref().for_each(drop);
    assert!(run.text(Channel::Answer).unwrap().contains("Paris"));
}

#[test]
fn prefill_and_progress() {
    let (runtime, model) = shared();
    let mut chat = model.session().build().unwrap();
    let mut last = None;
    let count = chat
        .prefill(&question(&runtime, FRANCE), |progress| {
            last = Some(progress);
            ControlFlow::Continue(())
        })
        .unwrap();
    let last = last.unwrap();
    assert_eq!((last.done, last.total, last.stage), (u64::from(count), u64::from(count), Stage::Prefill));
    let stopped = chat.prefill(&question(&runtime, FRANCE), |_| ControlFlow::Break(())).unwrap_err();
    assert_eq!(stopped.kind(), ErrorKind::Cancelled);
    assert_eq!(chat.info().unwrap().num_tokens, count);
}

#[test]
fn tokens() {
    let (_, model) = shared();
    let text = "Grüße, 世界 🌍";
    assert_eq!(model.detokenize(&model.tokenize(text).unwrap()).unwrap(), text.as_bytes());
    assert!(model.tokenize("").unwrap().is_empty());
    let error = model.detokenize(&[5, i32::MAX]).unwrap_err();
    assert_eq!((error.kind(), error.position()), (ErrorKind::Argument, 1));
}

#[test]
fn what_there_is() {
    let (runtime, model) = shared();
    let package = Package::open(&runtime, model_folder()).unwrap();
    assert_eq!(package.info().unwrap().family, "kimi_k3");
    assert!(package.meta("model_type").unwrap().starts_with("kimi_k3"));
    assert_eq!(package.meta("no\0thing").unwrap_err().kind(), ErrorKind::Argument);
    assert_eq!(runtime.devices().unwrap()[0].id, "cpu:0");
    assert!(dsa_sdk::has_feature("cpu") && !dsa_sdk::has_feature("telepathy"));
    assert!(dsa_sdk::version().starts_with(env!("CARGO_PKG_VERSION")));
    assert_eq!(model.stats().unwrap().state, ModelState::Ready);
    assert_eq!(Finish::from_code(77), Finish::Unknown(77));
    assert_eq!(Finish::Unknown(77).code(), 77);
}

#[test]
fn errors_say_what_a_program_needs() {
    let (runtime, model) = shared();
    let missing = runtime.load("/nowhere").err().unwrap();
    assert_eq!(missing.kind(), ErrorKind::NotFound);
    assert!(missing.to_string().contains("/nowhere"));

    let mut chat = model.session().context_tokens(32).build().unwrap();
    let full = chat.ask(&"word ".repeat(100)).unwrap_err();
    assert_eq!((full.kind(), full.fix(), full.available()), (ErrorKind::ContextFull, Fix::Shorten, 32));
    assert!(full.needed() > 100);

    let json = Prompt::new(&runtime).unwrap().json(r#"[{"role": }]"#).err().unwrap();
    assert!(json.kind() == ErrorKind::Json && json.position() > 0);
    assert_eq!(model.session().context_tokens(1 << 30).build().err().unwrap().kind(), ErrorKind::Limit);
    let empty = Prompt::new(&runtime).unwrap();
    let mut chat = model.session().build().unwrap();
    assert_eq!(chat.run(&empty).err().unwrap().kind(), ErrorKind::Argument);
    let hot = RunOptions::new().sampling(Sampling::model().temperature(-1.0));
    assert_eq!(chat.run_with(&question(&runtime, "Hi"), &hot).err().unwrap().kind(), ErrorKind::Argument);
    let high = RunOptions::new().effort(Effort::High);
    assert_eq!(chat.run_with(&question(&runtime, "Hi"), &high).err().unwrap().kind(), ErrorKind::Unsupported);
}

#[test]
fn the_log_is_heard_until_its_owners_are_gone() {
    let lines = Arc::new(Mutex::new(Vec::new()));
    let sink = lines.clone();
    let runtime = Runtime::builder()
        .max_threads(1)
        .log(LogLevel::Debug, move |level, place, line| {
            sink.lock().unwrap().push(format!("{level:?} {place}: {line}"));
        })
        .build()
        .unwrap();
    let model = runtime.load(model_folder()).unwrap();
    drop(runtime);
    model.close(None).unwrap();
    assert!(!lines.lock().unwrap().is_empty());
    drop(model);
    assert_eq!(Arc::strong_count(&lines), 1, "the sink went with the last owner");
}

#[test]
fn pictures() {
    let (runtime, model) = shared();
    let pixels: Vec<u8> = (0..5 * 3 * 3).map(|i| (i * 37 % 256) as u8).collect();
    let tight = Pixels::new(&pixels, 5, 3, PixelFormat::Rgb8);
    let image = Image::from_pixels(&runtime, &tight, &ImageOptions::new()).unwrap();
    assert_eq!((image.size().unwrap(), image.id().unwrap().len()), ((5, 3), 32));

    let padded: Vec<u8> = pixels.chunks(15).flat_map(|row| row.iter().copied().chain([1, 2])).collect();
    let wide = Pixels::new(&padded, 5, 3, PixelFormat::Rgb8).stride(17);
    let same = Image::from_pixels(&runtime, &wide, &ImageOptions::new()).unwrap();
    assert_eq!(same.id().unwrap(), image.id().unwrap());
    let turned = Image::from_pixels(&runtime, &tight.orientation(6), &ImageOptions::new()).unwrap();
    assert_eq!(turned.size().unwrap(), (3, 5));
    let small = Image::from_pixels(&runtime, &tight, &ImageOptions::new().max_side(3)).unwrap();
    assert_eq!(small.size().unwrap().0, 3);

    let kind = |image: Result<Image, dsa_sdk::Error>| image.err().map(|error| error.kind());
    for short in [
        tight.stride(16),
        tight.stride(usize::MAX),
        Pixels::new(&pixels, u32::MAX, u32::MAX, PixelFormat::Rgba8),
    ] {
        assert_eq!(
            kind(Image::from_pixels(&runtime, &short, &ImageOptions::new())),
            Some(ErrorKind::Argument)
        );
    }
    let refused = ImageOptions::new().max_side(3).refuse_too_large();
    assert_eq!(kind(Image::from_pixels(&runtime, &tight, &refused)), Some(ErrorKind::Limit));
    assert_eq!(kind(Image::decode(&runtime, &[], &ImageOptions::new())), Some(ErrorKind::Image));
    assert_eq!(kind(Image::open(&runtime, "/nowhere.png")), Some(ErrorKind::NotFound));

    let prompt = question(&runtime, "What is this? ").image(&image).unwrap();
    drop(image); // the prompt keeps it
    let mut chat = model.session().build().unwrap();
    let sighted = Package::open(&runtime, model_folder()).unwrap().info().unwrap().has_images;
    if sighted {
        let mut run = chat.run_with(&prompt, &RunOptions::new().max_tokens(4)).unwrap();
        run.by_ref().for_each(|event| drop(event.unwrap()));
        assert!(run.result().unwrap().image_tokens > 0);
        let operation = same.prepare(&model).unwrap();
        assert_eq!(operation.wait(None).unwrap(), None);
    } else {
        assert_eq!(chat.run(&prompt).err().unwrap().kind(), ErrorKind::Unsupported);
        assert_eq!(same.prepare(&model).err().unwrap().kind(), ErrorKind::Unsupported);
    }
}
