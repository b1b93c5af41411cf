//! `POST /files`: files as they come, to the disk piece by piece.

use std::{
    fs::File,
    io::Write,
    path::{Path, PathBuf},
};

use axum::{body::BodyDataStream, extract::Request, response::Response};
use futures_util::StreamExt;
use serde_json::{Value, json};

use super::{header, multipart::Multipart, plain_error, query, users::User};
use crate::e2b::answers;

/// Why a file was not written: a status and words.
type Refused = (u16, String);

pub(super) async fn answer(request: Request) -> Response {
    match written(request).await {
        Ok(files) => answers::json(200, &json!(files)),
        Err((status, message)) => plain_error(status, &message),
    }
}

async fn written(request: Request) -> Result<Vec<Value>, Refused> {
    let user = User::named(query(&request, "username").as_deref());
    let user = user.map_err(|refusal| (401, refusal.message))?;
    let path = query(&request, "path");
    let kind = header(request.headers(), "content-type").unwrap_or_default().to_owned();
    let body = request.into_body().into_data_stream();
    if let Some(boundary) = boundary(&kind) {
        return parts(body, &boundary, path, user).await;
    }
    let path = path.ok_or_else(|| (400, "path is required".to_owned()))?;
    let mut target = Target::new(&user.path(&path), user)?;
    let mut body = body;
    while let Some(piece) = body.next().await {
        target.write(&piece.map_err(|error| (400, error.to_string()))?)?;
    }
    Ok(vec![target.told()])
}

/// Each part is a file; a single one may have its path in the query.
async fn parts(body: BodyDataStream, boundary: &str, path: Option<String>, user: User) -> Result<Vec<Value>, Refused> {
    let mut parts = Multipart::new(body, boundary);
    let mut files = Vec::new();
    while let Some(part) = parts.next_part().await.map_err(|words| (400, words))? {
        if part.name != "file" {
            while parts.next_piece().await.map_err(|words| (400, words))?.is_some() {}
            continue;
        }
        let name = path.clone().or(part.filename).ok_or_else(|| (400, "a file has no name".to_owned()))?;
        if path.is_some() && !files.is_empty() {
            return Err((400, "you cannot upload multiple files to one path".to_owned()));
        }
        let mut target = Target::new(&user.path(&name), user)?;
        while let Some(piece) = parts.next_piece().await.map_err(|words| (400, words))? {
            target.write(&piece)?;
        }
        files.push(target.told());
    }
    Ok(files)
}

fn boundary(kind: &str) -> Option<String> {
    let rest = kind.strip_prefix("multipart/form-data")?;
    let value = rest.split(';').find_map(|field| field.trim().strip_prefix("boundary="))?;
    Some(value.trim_matches('"').to_owned())
}

/// A file that is being written.
struct Target {
    file: File,
    path: PathBuf,
}

impl Target {
    fn new(path: &Path, user: User) -> Result<Self, Refused> {
        if path.is_dir() {
            return Err((400, format!("path is a directory: {}", path.display())));
        }
        let made = path.parent().map_or(Ok(()), |folder| user.make_folder(folder)).and_then(|()| {
            let file = File::create(path)?;
            user.own(path)?;
            Ok(file)
        });
        let file = made.map_err(|error| (500, format!("error opening file '{}': {error}", path.display())))?;
        Ok(Target { file, path: path.to_owned() })
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), Refused> {
        self.file.write_all(bytes).map_err(|error| match error.kind() {
            std::io::ErrorKind::StorageFull => (507, "not enough disk space available".to_owned()),
            _ => (500, format!("error writing file: {error}")),
        })
    }

    fn told(&self) -> Value {
        let name = self.path.file_name().unwrap_or_default().to_string_lossy();
        json!({ "path": self.path.to_string_lossy(), "name": name, "type": "file" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_boundary_may_be_quoted() {
        assert_eq!(boundary("multipart/form-data; boundary=abc").as_deref(), Some("abc"));
        assert_eq!(boundary("multipart/form-data; charset=utf-8; boundary=\"a c\"").as_deref(), Some("a c"));
        assert_eq!(boundary("application/octet-stream"), None);
    }
}
