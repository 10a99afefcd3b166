//! Which image is exported, and what is refused.

use crate::program::{Linked, Program};
use crate::tool;

#[test]
fn image_is_named_by_build_id_path_or_file() {
    let program = Program::new("cc", Linked::Fixed);
    let expected = program.export("bolt");
    let path = program.path.to_str().unwrap().to_owned();
    let moved = program.file("moved");
    std::fs::copy(&program.path, &moved).unwrap();
    for image in [path.as_str(), "program", moved.to_str().unwrap()] {
        let said = tool::said(&mut tool::hbbp(&[
            "export",
            program.profile.to_str().unwrap(),
            "--format",
            "bolt",
            "--image",
            image,
        ]));
        assert_eq!(said, expected, "{image}");
    }
    // A directory that is there, and one whose slash says that it is to be.
    std::fs::create_dir(program.file("all")).unwrap();
    for folder in ["all", "made/"] {
        let folder = program.file(folder);
        tool::export(&program.profile, "bolt", &folder, &[]);
        let files = std::fs::read_dir(&folder).unwrap();
        let files: Vec<_> = files.map(|file| file.unwrap().path()).collect();
        assert_eq!(files.len(), 1);
        assert_eq!(std::fs::read_to_string(&files[0]).unwrap(), expected);
    }
}

#[test]
fn another_file_of_the_same_name_is_refused() {
    let program = Program::new("cc", Linked::Fixed);
    let other = Program::new("cc", Linked::Pie);
    for (image, expected) in [
        (other.path.to_str().unwrap(), "nothing of the profile has"),
        ("vmlinux", "the profile has no image `vmlinux`"),
    ] {
        let args = [
            "export",
            program.profile.to_str().unwrap(),
            "--format",
            "bolt",
            "--image",
            image,
        ];
        let output = tool::hbbp(&args).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && said.contains(expected), "{said}");
    }
}
