//! `settings`: named JSON values.

use rusqlite::{Connection, OptionalExtension, named_params};
use serde::{Serialize, de::DeserializeOwned};

use super::{Change, Error, Tx};

/// The value of a setting; its default where it was never set or cannot be read any more.
pub fn get<T: DeserializeOwned + Default>(connection: &Connection, name: &str) -> Result<T, Error> {
    let value: Option<String> = connection
        .prepare_cached("SELECT value FROM settings WHERE name = :name")?
        .query_row(named_params! { ":name": name }, |row| row.get("value"))
        .optional()?;
    Ok(value.and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default())
}

/// Sets it.
pub fn set<T: Serialize>(tx: &Tx<'_>, name: &str, value: &T) -> Result<(), Error> {
    let text = serde_json::to_string(value).expect("settings are plain data");
    tx.execute(
        "INSERT INTO settings (name, value) VALUES (:name, :value)
         ON CONFLICT (name) DO UPDATE SET value = excluded.value",
        named_params! { ":name": name, ":value": text },
    )?;
    tx.changed(Change::Settings);
    Ok(())
}
