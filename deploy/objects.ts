import { join } from "@std/path";
import { parseAll } from "@std/yaml";

/** A Kubernetes object in a file. */
export interface KubernetesObject {
  readonly apiVersion: string;
  readonly kind: string;
  readonly metadata: {
    readonly name: string;
    readonly namespace?: string;
    readonly labels?: Readonly<Record<string, string>>;
    readonly annotations?: Readonly<Record<string, string>>;
  };
  // deno-lint-ignore no-explicit-any
  readonly [field: string]: any;
}

/**
 * Reads the objects in the YAML files of a folder and its subfolders, in the order of `kubectl apply`: by file name.
 *
 * @param folder path from deploy/
 * @throws {Error} when a file cannot be read, or contains a document that is not an object
 */
export function readObjects(folder: string): KubernetesObject[] {
  const root = join(import.meta.dirname!, folder);
  const entries = [...Deno.readDirSync(root)].sort((left, right) => left.name < right.name ? -1 : 1);
  return entries.flatMap(({ name, isDirectory }) => {
    if (isDirectory) return readObjects(join(folder, name));
    return name.endsWith(".yaml") ? objectsOf(join(folder, name), Deno.readTextFileSync(join(root, name))) : [];
  });
}

function objectsOf(file: string, text: string): KubernetesObject[] {
  return (parseAll(text) as Partial<KubernetesObject>[]).map((object) => {
    if (!object?.apiVersion || !object.kind || !object.metadata?.name) {
      throw new Error(`read ${file}: it holds something that has no apiVersion, kind or name`);
    }
    return object as KubernetesObject;
  });
}
